// Package resolvers watches how the host resolves names, and what its own
// addresses are, for the boxes (B101, B105).
//
// Its laws:
//   - A file that cannot be read says nothing; it is never an older answer.
//   - The host's own addresses are what no cell may reach: where they cannot be
//     read, those that were known stay closed, and at the start that is an error.
package resolvers

import (
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	skepv1 "skep.dev/skep/api/skep/v1"
)

// Poll is how often the host is looked at. A change reaches the boxes within 2 s
// (B101), so the other second is for telling them.
const Poll = time.Second

// Clock wakes the watcher; tests turn it by hand.
type Clock interface {
	AfterFunc(d time.Duration, f func()) (stop func())
}

// Watcher watches files that tell about names, and the host's addresses.
type Watcher struct {
	clock Clock
	files Files
	own   func() ([]string, error)
	push  func(*skepv1.ResolverUpdate)

	mu     sync.Mutex
	now    *skepv1.ResolverUpdate
	seen   digests
	stop   func()
	closed bool
}

// Watch reads all now and looks again each second until Close; push gets what
// has changed.
func Watch(clock Clock, files Files, push func(*skepv1.ResolverUpdate)) (*Watcher, error) {
	return watch(clock, files, ownAddresses, push)
}

func watch(clock Clock, files Files, own func() ([]string, error), push func(*skepv1.ResolverUpdate)) (*Watcher, error) {
	r := &Watcher{clock: clock, files: files, own: own, push: push, stop: func() {}}
	addresses, err := own()
	if err != nil {
		return nil, fmt.Errorf("read the host's own addresses, which no cell may reach: %w", err)
	}
	texts := files.read()
	r.seen = texts.digests()
	r.now = texts.update(addresses)
	r.again()
	return r, nil
}

// Current is what a box is told first.
func (r *Watcher) Current() *skepv1.ResolverUpdate {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.now
}

// Own are the host's addresses that a box is told.
func (r *Watcher) Own() []netip.Addr {
	var out []netip.Addr
	for _, text := range r.Current().OwnAddresses {
		if a, err := netip.ParseAddr(text); err == nil {
			out = append(out, a.Unmap())
		}
	}
	return out
}

func (r *Watcher) again() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closed {
		r.stop = r.clock.AfterFunc(Poll, r.look)
	}
}

// look pushes what has changed. Files are compared by what is in them, since a
// time stamp may be older than the one before, or the same.
func (r *Watcher) look() {
	defer r.again()
	texts := r.files.read()
	seen := texts.digests()
	r.mu.Lock()
	old, same := r.now, seen == r.seen
	r.mu.Unlock()
	addresses, err := r.own()
	if err != nil {
		addresses = old.OwnAddresses
	}
	now := &skepv1.ResolverUpdate{Resolvers: old.Resolvers, Hosts: old.Hosts, OwnAddresses: addresses}
	if !same {
		now = texts.update(addresses)
	}
	r.mu.Lock()
	r.now, r.seen = now, seen
	r.mu.Unlock()
	if !proto.Equal(now, old) {
		r.push(now)
	}
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

// ownAddresses are those of the host's interfaces: no cell may reach them (B105).
func ownAddresses() ([]string, error) {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	var out []string
	for _, a := range all {
		p, err := netip.ParsePrefix(a.String())
		if err != nil {
			return nil, fmt.Errorf("interface address %s: %w", a, err)
		}
		out = append(out, p.Addr().WithZone("").String())
	}
	return out, nil
}
