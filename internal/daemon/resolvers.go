package daemon

import (
	"bufio"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/internal/name"
)

// resolverPoll is how soon a change of the host's resolvers reaches the boxes (B101).
const resolverPoll = 2 * time.Second

// resolvers watches resolv.conf, the hosts file and the host's addresses.
type resolvers struct {
	clock       Clock
	conf, hosts string
	push        func(*skepv1.ResolverUpdate)

	mu     sync.Mutex
	now    *skepv1.ResolverUpdate
	stamps [2]time.Time
	stop   func()
	closed bool
}

func watchResolvers(clock Clock, conf, hosts string, push func(*skepv1.ResolverUpdate)) *resolvers {
	r := &resolvers{clock: clock, conf: conf, hosts: hosts, push: push, stop: func() {}}
	r.stamps = r.stamp()
	r.now = r.read()
	r.again()
	return r
}

func (r *resolvers) current() *skepv1.ResolverUpdate {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.now
}

func (r *resolvers) again() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closed {
		r.stop = r.clock.AfterFunc(resolverPoll, r.look)
	}
}

// look pushes what has changed. The host's own addresses have no file, so they
// are read each time.
func (r *resolvers) look() {
	defer r.again()
	stamps := r.stamp()
	r.mu.Lock()
	old, same := r.now, stamps == r.stamps
	r.mu.Unlock()
	var now *skepv1.ResolverUpdate
	if same {
		now = &skepv1.ResolverUpdate{Resolvers: old.Resolvers, Hosts: old.Hosts, OwnAddresses: ownAddresses()}
	} else {
		now = r.read()
	}
	if proto.Equal(now, old) {
		return
	}
	r.mu.Lock()
	r.now, r.stamps = now, stamps
	r.mu.Unlock()
	r.push(now)
}

func (r *resolvers) stamp() (out [2]time.Time) {
	for i, file := range []string{r.conf, r.hosts} {
		if info, err := os.Stat(file); err == nil {
			out[i] = info.ModTime()
		}
	}
	return out
}

func (r *resolvers) read() *skepv1.ResolverUpdate {
	return &skepv1.ResolverUpdate{Resolvers: readResolvConf(r.conf), Hosts: readHosts(r.hosts), OwnAddresses: ownAddresses()}
}

func (r *resolvers) close() {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	r.stop()
}

// fields yields the words of each line of a file, without comments.
func fields(file string, each func([]string)) {
	f, err := os.Open(file)
	if err != nil {
		return // no file says nothing
	}
	defer func() { _ = f.Close() }()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		line, _, _ := strings.Cut(lines.Text(), "#")
		if words := strings.Fields(line); len(words) > 1 {
			each(words)
		}
	}
}

// readResolvConf lists the name servers (resolv.conf(5)).
func readResolvConf(file string) (out []string) {
	fields(file, func(words []string) {
		if words[0] != "nameserver" || len(out) == 3 { // MAXNS
			return
		}
		if a, err := netip.ParseAddr(words[1]); err == nil {
			out = append(out, netip.AddrPortFrom(a, 53).String())
		}
	})
	return out
}

// readHosts gives the addresses of each name (hosts(5)), in the order of the file.
func readHosts(file string) (out []*skepv1.HostsEntry) {
	at := map[string]*skepv1.HostsEntry{}
	fields(file, func(words []string) {
		a, err := netip.ParseAddr(words[0])
		if err != nil {
			return
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
	})
	return out
}

// ownAddresses are those of the host's interfaces: no cell may reach them (B105).
func ownAddresses() (out []string) {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil
	}
	for _, a := range all {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			out = append(out, p.Addr().WithZone("").String())
		}
	}
	return out
}

// pushResolvers tells every box.
func (d *Daemon) pushResolvers(u *skepv1.ResolverUpdate) {
	d.mu.Lock()
	var all []*life
	for _, l := range d.live {
		all = append(all, l)
	}
	d.mu.Unlock()
	for _, l := range all {
		if b := l.boundary(); b != nil {
			b.link.Push(u)
		}
	}
}
