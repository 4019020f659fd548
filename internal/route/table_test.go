package route

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"pgregory.net/rapid"

	"skep.dev/skep/internal/name"
)

func TestOneNameOneAddress(t *testing.T) {
	table := NewTable(100)
	a, _, _ := table.Assign("a.test", false)
	again, _, _ := table.Assign("a.test", false)
	six, _, _ := table.Assign("a.test", true)
	if a != again || a == six || !name.Pool4().Contains(a) || !name.Pool6().Contains(six) {
		t.Errorf("%s %s %s", a, again, six)
	}
	if host, ok := table.Name(six); !ok || host != "a.test" {
		t.Errorf("%q %v", host, ok)
	}
	if _, ok := table.Name(netip.MustParseAddr("100.64.99.99")); ok {
		t.Error("a guessed address has no name")
	}
}

func TestLeastRecentlyUsedGoesAndOpenStays(t *testing.T) {
	table := NewTable(3)
	addr := map[string]netip.Addr{}
	for _, h := range []string{"a", "b", "c"} {
		addr[h], _, _ = table.Assign(h, false)
	}
	_, release, ok := table.Hold(addr["a"])
	table.Name(addr["b"])
	if _, gone, _ := table.Assign("d", false); !ok || gone != addr["c"] {
		t.Errorf("%s went, want c", gone)
	}
	if _, gone, _ := table.Assign("e", false); gone != addr["b"] {
		t.Errorf("%s went, want b", gone)
	}
	release()
	release() // only once
	table.Assign("f", false)
	if _, gone, _ := table.Assign("g", false); gone == addr["a"] {
		t.Error("a was released last, so it is not the oldest")
	}
	if again, _, _ := table.Assign("c", false); again == addr["c"] {
		t.Error("an address served a name twice")
	}
}

// B51: no address serves two names, none is reserved, whatever happens.
func TestNoAddressServesTwoNames(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		table := NewTable(rapid.IntRange(1, 6).Draw(t, "max"))
		first := map[netip.Addr]string{}
		for _, n := range rapid.SliceOf(rapid.IntRange(0, 20)).Draw(t, "names") {
			host := fmt.Sprintf("n%d.test", n)
			addr, _, err := table.Assign(host, n%2 == 0)
			if err != nil {
				t.Fatal(err)
			}
			if was, ok := first[addr]; ok && was != host {
				t.Fatalf("%s was %s and is %s", addr, was, host)
			}
			first[addr] = host
		}
	})
}

func TestReservedIsSkippedAndThePoolEnds(t *testing.T) {
	table := NewTable(10)
	table.v4.next = 1<<22 - 258 // one before 100.127.255.0
	a, _, err := table.Assign("a", false)
	if err != nil || a.String() != "100.127.254.254" {
		t.Fatal(a, err)
	}
	if a, _, err = table.Assign("b", false); err != nil || a.String() != "100.127.254.255" {
		t.Fatal(a, err)
	}
	if a, _, err = table.Assign("c", false); err == nil {
		t.Fatalf("the pool is used up, but gave %s", a)
	}
	table.v6.next = ^uint64(0) - 0xff
	if a, _, err = table.Assign("d", true); err == nil {
		t.Fatalf("reserved %s was handed out", a)
	}
}

func TestTableInParallel(t *testing.T) {
	table := NewTable(50)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 500 {
				addr, _, _ := table.Assign(fmt.Sprintf("h%d", (i*j)%200), j%2 == 0)
				if _, release, ok := table.Hold(addr); ok {
					release()
				}
			}
		})
	}
	wg.Wait()
	if v4, v6 := table.Len(); v4 > 50 || v6 > 50 {
		t.Errorf("%d and %d names, at most 50 each", v4, v6)
	}
}

func TestBucket(t *testing.T) {
	now := time.Unix(0, 0)
	b := NewBucket(2, func() time.Time { return now })
	for i, want := range []bool{true, true, false} {
		if b.Take() != want {
			t.Errorf("take %d", i)
		}
	}
	now = now.Add(time.Second / 2)
	if !b.Take() || b.Take() {
		t.Error("half a second gives one")
	}
	now = now.Add(-time.Hour)
	if b.Take() {
		t.Error("a clock that goes back gives nothing")
	}
	if (*Bucket)(nil).Take() {
		t.Error("the nil bucket refuses")
	}
}

// TestSlicesAreDisjoint: GI-10, G81. A full slice ends; from the 64th on there is no IPv4.
func TestSlicesAreDisjoint(t *testing.T) {
	seen := map[netip.Addr]int{}
	for _, n := range []int{0, 1, 62, 63} {
		table, err := NewSlice(4, n)
		if err != nil {
			t.Fatal(err)
		}
		table.v4.next = uint64(n)<<16 + 65000
		for i := 0; ; i++ {
			addr, _, err := table.Assign(fmt.Sprintf("n%d.test", i), false)
			if errors.Is(err, ErrPoolUsedUp) {
				break
			}
			if other, taken := seen[addr]; err != nil || taken || name.Reserved4().Contains(addr) {
				t.Fatalf("slice %d hands out %s, which slice %d has: %v", n, addr, other, err)
			}
			seen[addr] = n
		}
		six, _, err := table.Assign("a.test", true)
		if b := six.As16(); err != nil || int(b[8])<<8|int(b[9]) != n {
			t.Errorf("slice %d gives %s, %v", n, six, err)
		}
	}
	if len(seen) < 3*500 {
		t.Errorf("%d addresses came of four slices", len(seen))
	}
	late, err := NewSlice(4, 64)
	if err != nil || late.IPv4() {
		t.Fatalf("slice 64 has IPv4: %v", err)
	}
	r := &Resolver{Table: late, Gate: &gate{}, Rate: NewBucket(10, time.Now), IPv6: true}
	for _, kind := range []dnsmessage.Type{dnsmessage.TypeA, dnsmessage.TypeAAAA} {
		addr, code := r.lookup(t.Context(), dnsmessage.Question{Name: dnsmessage.MustNewName("a.test."), Type: kind, Class: dnsmessage.ClassINET})
		if code != dnsmessage.RCodeSuccess || addr.IsValid() != (kind == dnsmessage.TypeAAAA) {
			t.Errorf("%s: %s, %s", kind, addr, code)
		}
	}
	for _, n := range []int{-1, Slices} {
		if _, err := NewSlice(4, n); err == nil {
			t.Errorf("slice %d is made", n)
		}
	}
}
