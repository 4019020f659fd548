package resolvers

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	skepv1 "skep.dev/skep/api/skep/v1"
)

// clock keeps the next call.
type clock struct{ next func() }

func (c *clock) AfterFunc(d time.Duration, f func()) func() {
	if d > time.Second {
		panic("the boxes must be told within 2 s, and this leaves no time for it (B101)")
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
	w, err := Watch(c, Files{Conf: conf, Hosts: hosts}, func(u *skepv1.ResolverUpdate) { pushed = append(pushed, u) })
	if err != nil {
		t.Fatal(err)
	}
	now := w.Current()
	if len(now.Resolvers) != 2 || now.Resolvers[0] != "192.0.2.1:53" || now.Resolvers[1] != "[2001:db8::1]:53" {
		t.Errorf("resolvers %v", now.Resolvers)
	}
	if len(now.Hosts) == 0 || now.Hosts[0].Name != "localhost" || len(now.Hosts[0].Addresses) != 2 {
		t.Errorf("hosts %v", now.Hosts)
	}
	if len(now.OwnAddresses) == 0 || len(w.Own()) != len(now.OwnAddresses) {
		t.Error("the host has no address of its own")
	}
	c.next()
	if len(pushed) != 0 {
		t.Errorf("nothing changed, and %v was pushed", pushed)
	}
	write(t, conf, "nameserver 192.0.2.2\n", at) // with the time stamp of before
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

// nsswitch says which sources count (B101).
func TestNameServiceSwitch(t *testing.T) {
	dir := t.TempDir()
	at := time.Now()
	f := Files{filepath.Join(dir, "resolv.conf"), filepath.Join(dir, "hosts"), filepath.Join(dir, "nsswitch.conf")}
	write(t, f.Conf, "nameserver 192.0.2.1\n", at)
	write(t, f.Hosts, "192.0.2.7 box.test\n", at)
	c, last := &clock{}, (*skepv1.ResolverUpdate)(nil)
	w, err := Watch(c, f, func(u *skepv1.ResolverUpdate) { last = u })
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for _, s := range []struct {
		text         string
		servers, all int
	}{
		{"hosts: files\n", 0, 1}, {"hosts:\tdns [!UNAVAIL=return]\n", 1, 0}, {"passwd: files\nhosts: mymachines # files dns\n", 0, 0},
		{"hosts:files resolve [!UNAVAIL=return] myhostname\n", 1, 1}, {"#hosts: files\nhosts: db\n", 0, 0}, {"passwd: files\n", 1, 1},
	} {
		write(t, f.Switch, s.text, at)
		c.next()
		if now := w.Current(); len(now.Resolvers) != s.servers || len(now.Hosts) != s.all || now != last {
			t.Errorf("%q: %v", s.text, now)
		}
	}
}

// B105: where the interfaces cannot be listed the floor does not open.
func TestUnreadableInterfacesStayClosed(t *testing.T) {
	var own []string
	var broken error
	read := func() ([]string, error) { return own, broken }
	broken = errors.New("no netlink")
	if w, err := watch(&clock{}, Files{}, read, nil); err == nil {
		t.Errorf("it starts with %v", w.Current().OwnAddresses)
	}
	own, broken = []string{"192.0.2.9"}, nil
	c, pushed := &clock{}, 0
	w, err := watch(c, Files{}, read, func(*skepv1.ResolverUpdate) { pushed++ })
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	own, broken = nil, errors.New("no netlink")
	c.next()
	if got := w.Current().OwnAddresses; len(got) != 1 || pushed != 0 {
		t.Errorf("%v, pushed %d", got, pushed)
	}
	own, broken = nil, nil // the host has lost them all
	c.next()
	if got := w.Current().OwnAddresses; len(got) != 0 || pushed != 1 {
		t.Errorf("%v, pushed %d", got, pushed)
	}
}
