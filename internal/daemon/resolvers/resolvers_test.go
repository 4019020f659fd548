package resolvers

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	skepv1 "skep.dev/skep/api/skep/v1"
)

// clock keeps the next call.
type clock struct{ next func() }

func (c *clock) AfterFunc(d time.Duration, f func()) func() {
	if d > Poll {
		panic("later than B101 allows")
	}
	c.next = f
	return func() { c.next = nil }
}

func write(t *testing.T, file, text string, at time.Time) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(file, at, at); err != nil {
		t.Fatal(err)
	}
}

func TestChangesArePushed(t *testing.T) {
	dir := t.TempDir()
	conf, hosts := filepath.Join(dir, "resolv.conf"), filepath.Join(dir, "hosts")
	at := time.Now().Add(-time.Hour)
	write(t, conf, "# comment\nsearch x\nnameserver 192.0.2.1\nnameserver nonsense\nnameserver 2001:db8::1 # two\n", at)
	write(t, hosts, "127.0.0.1 LocalHost me\n::1 localhost\nnonsense x\n192.0.2.7 a_b..c\n", at)
	var pushed []*skepv1.ResolverUpdate
	c := &clock{}
	w := Watch(c, conf, hosts, func(u *skepv1.ResolverUpdate) { pushed = append(pushed, u) })
	now := w.Current()
	if len(now.Resolvers) != 2 || now.Resolvers[0] != "192.0.2.1:53" || now.Resolvers[1] != "[2001:db8::1]:53" {
		t.Errorf("resolvers %v", now.Resolvers)
	}
	if len(now.Hosts) == 0 || now.Hosts[0].Name != "localhost" || len(now.Hosts[0].Addresses) != 2 {
		t.Errorf("hosts %v", now.Hosts)
	}
	if len(now.OwnAddresses) == 0 {
		t.Error("the host has no address of its own")
	}
	c.next()
	if len(pushed) != 0 {
		t.Errorf("nothing changed, and %v was pushed", pushed)
	}
	write(t, conf, "nameserver 192.0.2.2\n", at.Add(time.Second))
	c.next()
	if len(pushed) != 1 || len(pushed[0].Resolvers) != 1 || w.Current() != pushed[0] {
		t.Errorf("pushed %v", pushed)
	}
	if err := os.Remove(conf); err != nil {
		t.Fatal(err)
	}
	c.next()
	if len(pushed) != 2 || len(pushed[1].Resolvers) != 0 {
		t.Errorf("a file that is gone still answers: %v", pushed)
	}
	w.Close()
	if c.next != nil {
		t.Error("it goes on after its end")
	}
}
