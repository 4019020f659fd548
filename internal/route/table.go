package route

import (
	"container/list"
	"encoding/binary"
	"errors"
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

// NewTable makes an empty table that holds at most max names in each family.
func NewTable(max int) *Table {
	empty := func() family {
		return family{next: 1, max: max, byName: map[string]*entry{}, byAddr: map[netip.Addr]*entry{}, used: list.New()}
	}
	return &Table{v4: empty(), v6: empty()}
}

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
	for {
		addr := at(f.next, v6)
		pool, reserved := name.Pool4(), name.Reserved4()
		if v6 {
			pool, reserved = name.Pool6(), name.Reserved6()
		}
		if !pool.Contains(addr) || f.next == 0 { // 0: the IPv6 offset ran over
			return netip.Addr{}, ErrPoolUsedUp
		}
		f.next++
		if !reserved.Contains(addr) {
			return addr, nil
		}
	}
}

func at(offset uint64, v6 bool) netip.Addr {
	if v6 {
		b := name.Pool6().Addr().As16()
		binary.BigEndian.PutUint64(b[8:], offset)
		return netip.AddrFrom16(b)
	}
	b := name.Pool4().Addr().As4()
	binary.BigEndian.PutUint32(b[:], binary.BigEndian.Uint32(b[:])+uint32(min(offset, 1<<31)))
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
