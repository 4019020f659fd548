package route

import (
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"time"

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
