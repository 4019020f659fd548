package route

import (
	"fmt"
	"net/netip"
	"testing"

	"pgregory.net/rapid"
)

// A table that took another one over behaves as that one would have: whatever was asked
// and held before, the same names get the same addresses, the same ones are evicted, and
// no address stands for two names in turn.
func TestInheritedTableGoesOn(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.IntRange(1, 8).Draw(t, "most")
		old, given := NewTable(most), map[netip.Addr]string{}
		ask := func(tables ...*Table) {
			host, v6 := fmt.Sprintf("n%d.test", rapid.IntRange(0, 12).Draw(t, "name")), rapid.Bool().Draw(t, "v6")
			var addr, evicted netip.Addr
			for i, table := range tables {
				a, e, err := table.Assign(host, v6)
				if err != nil {
					t.Fatal(err)
				}
				if i > 0 && (a != addr || e != evicted) {
					t.Fatalf("%s is %s and takes %s; before it was %s and %s", host, a, e, addr, evicted)
				}
				addr, evicted = a, e
			}
			if before, ok := given[addr]; ok && before != host {
				t.Fatalf("%s stood for %s, and now for %s", addr, before, host)
			}
			given[addr] = host
		}
		for range rapid.IntRange(0, 30).Draw(t, "before") {
			ask(old)
		}
		heir := NewTable(most)
		names, next := old.Leave()
		heir.Inherit(next)
		for _, n := range names {
			if err := heir.Add(n); err != nil {
				t.Fatal(err)
			}
			if host, ok := old.Name(n.Addr); !ok || host != n.Host {
				t.Fatalf("%v", n)
			}
		}
		for _, n := range names { // what was asked above counts as a use
			heir.Name(n.Addr)
		}
		for range 30 {
			ask(old, heir)
		}
	})
}

// What a flow holds open is used last.
func TestHeldNamesAreInheritedAsUsed(t *testing.T) {
	old := NewTable(3)
	held, _, _ := old.Assign("held.test", false)
	_, release, _ := old.Hold(held)
	defer release()
	for _, host := range []string{"a.test", "b.test"} {
		if _, _, err := old.Assign(host, false); err != nil {
			t.Fatal(err)
		}
	}
	heir := NewTable(3)
	names, next := old.Leave()
	heir.Inherit(next)
	for _, n := range names {
		if err := heir.Add(n); err != nil {
			t.Fatal(err)
		}
	}
	for _, host := range []string{"c.test", "d.test"} {
		if _, evicted, err := heir.Assign(host, false); err != nil || evicted == held {
			t.Errorf("%s takes %s, %v", host, evicted, err)
		}
	}
}

// TestForeignNamesAreNotInherited is the attack: a box that was taken over leaves what no
// table could have given.
func TestForeignNamesAreNotInherited(t *testing.T) {
	at := netip.MustParseAddr
	for _, n := range []Name{
		{"x.test", at("9.9.9.9")}, {"x.test", at("100.64.0.9")}, {"x.test", at("100.127.255.254")}, {"x.test", at("127.0.0.1")}, {"X.test", at("100.64.0.2")},
		{"", at("100.64.0.2")}, {"a b", at("100.64.0.2")}, {"twice.test", at("100.64.0.2")}, {"x.test", at("100.64.0.1")}, {"x.test", netip.Addr{}},
		{"x.test", at("::ffff:100.64.0.2")}, {"x.test", at("2001:db8::1")},
	} {
		table := NewTable(2)
		table.Inherit(Offsets{V4: 5, V6: 5})
		if err := table.Add(Name{"twice.test", at("100.64.0.1")}); err != nil {
			t.Fatal(err)
		}
		if err := table.Add(n); err == nil {
			t.Errorf("%v was taken over", n)
		}
	}
	table := NewTable(2)
	table.Inherit(Offsets{V4: 9})
	for i, host := range []string{"a.test", "b.test", "c.test"} {
		if err := table.Add(Name{host, at(fmt.Sprintf("100.64.0.%d", i+1))}); (err == nil) != (i < 2) {
			t.Errorf("%d: %v", i, err)
		}
	}
}
