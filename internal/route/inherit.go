package route

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"skep.dev/skep/internal/name"
)

// Name is a name with the address that stands for it.
type Name struct {
	Host string
	Addr netip.Addr
}

// Offsets are those of the addresses that come next, in both families.
type Offsets struct{ V4, V6 uint64 }

var errNotOfTable = errors.New("an address that this table never gave")

// Leave is what another box's table needs to go on with this one's addresses: the names
// of each family with the least recently used first, and what comes next. A name that a
// flow holds open counts as used now.
func (t *Table) Leave() ([]Name, Offsets) {
	t.mu.Lock()
	defer t.mu.Unlock()
	names := make([]Name, 0, len(t.v4.byName)+len(t.v6.byName))
	for _, f := range []*family{&t.v4, &t.v6} {
		if f.used == nil {
			continue
		}
		for e := f.used.Back(); e != nil; e = e.Prev() {
			names = append(names, e.Value.(*entry).name())
		}
		var open []Name
		for _, e := range f.byName {
			if e.elem == nil {
				open = append(open, e.name())
			}
		}
		slices.SortFunc(open, func(a, b Name) int { return a.Addr.Compare(b.Addr) })
		names = append(names, open...)
	}
	return names, Offsets{t.v4.next, t.v6.next}
}

func (e *entry) name() Name { return Name{e.host, e.addr} }

// Inherit begins to take over another table into an empty one; Add is next, for each name
// in the order of Leave.
func (t *Table) Inherit(o Offsets) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.v4.next, t.v6.next = o.V4, o.V6
}

// Add takes a name over. One that could not have come from a table like this is refused.
func (t *Table) Add(n Name) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	v6 := n.Addr.Is6()
	f := t.family(v6)
	host, err := name.Host(n.Host)
	if err != nil || host != n.Host {
		return fmt.Errorf("take over the name %q: it is none", n.Host)
	}
	if !name.InPools(n.Addr) || offset(n.Addr) == 0 || offset(n.Addr) >= f.next || at(offset(n.Addr), v6) != n.Addr {
		return fmt.Errorf("take over %s: %w", n.Addr, errNotOfTable)
	}
	if len(f.byName) >= f.max || f.byName[host] != nil || f.byAddr[n.Addr] != nil {
		return fmt.Errorf("take over %s for %q: it is there, or one too many", n.Addr, host)
	}
	e := &entry{host: host, addr: n.Addr}
	e.elem = f.used.PushFront(e)
	f.byName[host], f.byAddr[n.Addr] = e, e
	return nil
}

// offset is an address's place in its pool.
func offset(a netip.Addr) uint64 {
	if a.Is6() {
		b := a.As16()
		return binary.BigEndian.Uint64(b[8:])
	}
	b, pool := a.As4(), name.Pool4().Addr().As4()
	return uint64(binary.BigEndian.Uint32(b[:]) - binary.BigEndian.Uint32(pool[:]))
}
