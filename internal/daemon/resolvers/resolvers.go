// Package resolvers watches how the host resolves names, and what its own
// addresses are, for the boxes (B101, B105).
//
// Its law: a file that cannot be read says nothing; it is never an older answer.
package resolvers

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

// Poll is how soon a change of the host's resolvers reaches the boxes (B101).
const Poll = 2 * time.Second

// Clock wakes the watcher; tests turn it by hand.
type Clock interface {
	AfterFunc(d time.Duration, f func()) (stop func())
}

// Watcher watches resolv.conf, the hosts file and the host's addresses.
type Watcher struct {
	clock       Clock
	conf, hosts string
	push        func(*skepv1.ResolverUpdate)

	mu     sync.Mutex
	now    *skepv1.ResolverUpdate
	stamps [2]time.Time
	stop   func()
	closed bool
}

// Watch reads the files now and looks again every two seconds until Close; push
// gets what has changed.
func Watch(clock Clock, conf, hosts string, push func(*skepv1.ResolverUpdate)) *Watcher {
	r := &Watcher{clock: clock, conf: conf, hosts: hosts, push: push, stop: func() {}}
	r.stamps = r.stamp()
	r.now = r.read()
	r.again()
	return r
}

// Current is what a box is told first.
func (r *Watcher) Current() *skepv1.ResolverUpdate {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.now
}

func (r *Watcher) again() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closed {
		r.stop = r.clock.AfterFunc(Poll, r.look)
	}
}

// look pushes what has changed. The host's own addresses have no file, so they
// are read each time.
func (r *Watcher) look() {
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

func (r *Watcher) stamp() (out [2]time.Time) {
	for i, file := range []string{r.conf, r.hosts} {
		if info, err := os.Stat(file); err == nil {
			out[i] = info.ModTime()
		}
	}
	return out
}

func (r *Watcher) read() *skepv1.ResolverUpdate {
	return &skepv1.ResolverUpdate{Resolvers: readResolvConf(r.conf), Hosts: readHosts(r.hosts), OwnAddresses: ownAddresses()}
}

// Close ends the watching. A nil Watcher is closed.
func (r *Watcher) Close() {
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
