package resolvers

import (
	"bytes"
	"crypto/sha256"
	"iter"
	"net/netip"
	"os"
	"slices"
	"strings"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/internal/name"
)

// Files are where the host says how names resolve: resolv.conf(5), hosts(5) and
// nsswitch.conf(5). An empty path is a file that is not there.
type Files struct {
	Conf, Hosts, Switch string
}

// System is where this host says it.
func System() Files {
	return Files{Conf: "/etc/resolv.conf", Hosts: "/etc/hosts", Switch: "/etc/nsswitch.conf"}
}

// texts are the contents of the files, read once, so that what was compared is
// what is parsed.
type texts struct{ conf, hosts, nsswitch []byte }

type digests [3][sha256.Size]byte

func (f Files) read() texts {
	var out texts
	for at, file := range map[*[]byte]string{&out.conf: f.Conf, &out.hosts: f.Hosts, &out.nsswitch: f.Switch} {
		*at, _ = os.ReadFile(file) // no file says nothing
	}
	return out
}

func (t texts) digests() digests {
	return digests{sha256.Sum256(t.conf), sha256.Sum256(t.hosts), sha256.Sum256(t.nsswitch)}
}

// update is what a box is told. Of nsswitch it follows which sources count, not
// their order: the hosts file always comes first.
func (t texts) update(own []string) *skepv1.ResolverUpdate {
	out := &skepv1.ResolverUpdate{OwnAddresses: own}
	files, dns := sources(t.nsswitch)
	if dns {
		out.Resolvers = nameServers(t.conf)
	}
	if files {
		out.Hosts = hostNames(t.hosts)
	}
	return out
}

// fields yields the words of each line, without comments.
func fields(text []byte) iter.Seq[[]string] {
	return func(yield func([]string) bool) {
		for line := range bytes.Lines(text) {
			plain, _, _ := strings.Cut(string(line), "#")
			if words := strings.Fields(plain); len(words) > 0 && !yield(words) {
				return
			}
		}
	}
}

// sources reads the line of hosts: whether the hosts file counts, and whether name
// servers are asked, be it through the resolver of systemd. Without that line both do.
func sources(nsswitch []byte) (files, dns bool) {
	for words := range fields(nsswitch) {
		rest, ok := strings.CutPrefix(strings.Join(words, " "), "hosts:")
		if !ok {
			continue
		}
		names := strings.Fields(rest)
		return slices.Contains(names, "files"), slices.Contains(names, "dns") || slices.Contains(names, "resolve")
	}
	return true, true
}

// nameServers lists those of resolv.conf, at most three (MAXNS).
func nameServers(conf []byte) (out []string) {
	for words := range fields(conf) {
		if words[0] != "nameserver" || len(words) < 2 || len(out) == 3 {
			continue
		}
		if a, err := netip.ParseAddr(words[1]); err == nil {
			out = append(out, netip.AddrPortFrom(a, 53).String())
		}
	}
	return out
}

// hostNames gives the addresses of each name, in the order of the file.
func hostNames(hosts []byte) (out []*skepv1.HostsEntry) {
	at := map[string]*skepv1.HostsEntry{}
	for words := range fields(hosts) {
		a, err := netip.ParseAddr(words[0])
		if err != nil {
			continue
		}
		for _, word := range words[1:] {
			host, err := name.Host(word)
			if err != nil {
				continue
			}
			if at[host] == nil {
				at[host] = &skepv1.HostsEntry{Name: host}
				out = append(out, at[host])
			}
			at[host].Addresses = append(at[host].Addresses, a.WithZone("").String())
		}
	}
	return out
}
