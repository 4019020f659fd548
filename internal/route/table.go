package route

import (
	"container/list"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"sync"

	"skep.dev/skep/internal/name"
)

// ErrPoolUsedUp says that no address is left that never served a name (B52).
var ErrPoolUsedUp = errors.New("synthetic addresses are used up")

// Table keeps which synthetic address stands for which name (B50 to B52). It is
// safe for concurrent use.
type Table struct {
	mu sync.Mutex
	v4 family
	v6 family
}

type family struct {
	next   uint64 // offset of the next address in the pool; never goes back
	last   uint64 // offset of the last one that may be handed out
	max    int
	byName map[string]*entry
	byAddr map[netip.Addr]*entry
	used   *list.List // entries without an open flow, the least recently used last
}

type entry struct {
	host string
	addr netip.Addr
	open int
	elem *list.Element // nil while a flow is open
}

// NewTable makes an empty table of the whole pools that holds at most max names in
// each family.
func NewTable(max int) *Table {
	return &Table{v4: newFamily(max, 1, 1<<22-1), v6: newFamily(max, 1, math.MaxUint64)}
}

// Slices are how many parts the IPv6 pool is cut into; of the IPv4 pool there are 64
// (guest.md, G81).
const (
	Slices  = 1 << 16
	slices4 = 64
)

// NewSlice is NewTable for one part of the pools, from which no other part's table
// takes an address. From the 64th on it has no IPv4 address.
func NewSlice(max, n int) (*Table, error) {
	if n < 0 || n >= Slices {
		return nil, fmt.Errorf("pool slice %d: want 0 to %d", n, Slices-1)
	}
	of := func(bits int) family {
		first := uint64(n) << bits
		return newFamily(max, first|1, first|(1<<bits-1))
	}
	t := &Table{v4: of(16), v6: of(48)}
	if n >= slices4 {
		t.v4 = family{}
	}
	return t, nil
}

func newFamily(max int, first, last uint64) family {
	return family{next: first, last: last, max: max, byName: map[string]*entry{}, byAddr: map[netip.Addr]*entry{}, used: list.New()}
}

// IPv4 reports whether the table has IPv4 addresses at all (G82).
func (t *Table) IPv4() bool { return t.v4.used != nil }

// Assign gives the address of a normalised name in one family, the same as long
// as the name stays. evicted is an address that just lost its name, or zero.
func (t *Table) Assign(host string, v6 bool) (addr, evicted netip.Addr, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f := t.family(v6)
	if e := f.byName[host]; e != nil {
		f.touch(e)
		return e.addr, netip.Addr{}, nil
	}
	addr, err = f.fresh(v6)
	if err != nil {
		return netip.Addr{}, netip.Addr{}, err
	}
	e := &entry{host: host, addr: addr}
	e.elem = f.used.PushFront(e)
	f.byName[host], f.byAddr[addr] = e, e
	if len(f.byName) > f.max {
		evicted = f.evict(e)
	}
	return addr, evicted, nil
}

// Name finds the name of a synthetic address and counts as a use of it.
func (t *Table) Name(addr netip.Addr) (string, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f := t.family(addr.Is6())
	e := f.byAddr[addr]
	if e == nil {
		return "", false
	}
	f.touch(e)
	return e.host, true
}

// Hold is Name for a flow that opens: the name stays until release is called,
// once (B52).
func (t *Table) Hold(addr netip.Addr) (host string, release func(), ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f := t.family(addr.Is6())
	e := f.byAddr[addr]
	if e == nil {
		return "", func() {}, false
	}
	if e.elem != nil {
		f.used.Remove(e.elem)
		e.elem = nil
	}
	e.open++
	return e.host, sync.OnceFunc(func() { t.release(e) }), true
}

func (t *Table) release(e *entry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e.open--; e.open == 0 {
		e.elem = t.family(e.addr.Is6()).used.PushFront(e)
	}
}

// Len is how many names have an address, in both families.
func (t *Table) Len() (v4, v6 int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.v4.byName), len(t.v6.byName)
}

func (t *Table) family(v6 bool) *family {
	if v6 {
		return &t.v6
	}
	return &t.v4
}

func (f *family) touch(e *entry) {
	if e.elem != nil {
		f.used.MoveToFront(e.elem)
	}
}

// fresh takes the next address of the pool that is not reserved (B51).
func (f *family) fresh(v6 bool) (netip.Addr, error) {
	reserved := name.Reserved4()
	if v6 {
		reserved = name.Reserved6()
	}
	for f.next != 0 && f.next <= f.last { // 0: the IPv6 offset ran over
		addr := at(f.next, v6)
		f.next++
		if !reserved.Contains(addr) {
			return addr, nil
		}
	}
	return netip.Addr{}, ErrPoolUsedUp
}

func at(offset uint64, v6 bool) netip.Addr {
	if v6 {
		b := name.Pool6().Addr().As16()
		binary.BigEndian.PutUint64(b[8:], offset)
		return netip.AddrFrom16(b)
	}
	b := name.Pool4().Addr().As4()
	binary.BigEndian.PutUint32(b[:], binary.BigEndian.Uint32(b[:])+uint32(offset))
	return netip.AddrFrom4(b)
}

// evict takes the name from the least recently used address that has no open
// flow, and never from the one just made.
func (f *family) evict(keep *entry) netip.Addr {
	last := f.used.Back()
	if last == nil || last.Value.(*entry) == keep {
		return netip.Addr{}
	}
	e := last.Value.(*entry)
	f.used.Remove(last)
	delete(f.byName, e.host)
	delete(f.byAddr, e.addr)
	return e.addr
}
