package prove

import (
	"bytes"
	"errors"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"

	"skep.dev/skep/internal/sys"
)

func whole() string {
	var b strings.Builder
	for _, w := range Walls() {
		b.WriteString(w.Name + ": " + w.Want + "\n")
	}
	return b.String()
}

func TestJudge(t *testing.T) {
	if err := Judge(whole()); err != nil {
		t.Fatal(err)
	}
	// Each wall that answers otherwise, or not at all, is named.
	for _, w := range Walls() {
		line := w.Name + ": " + w.Want + "\n"
		for name, output := range map[string]string{
			"done":    strings.Replace(whole(), line, w.Name+": done\n", 1),
			"missing": strings.Replace(whole(), line, "", 1),
			"longer":  strings.Replace(whole(), line, w.Name+": "+w.Want+" \n", 1),
			"cut":     whole()[:strings.Index(whole(), line)+len(line)-1],
		} {
			var m *Missing
			if err := Judge(output); !errors.As(err, &m) || m.Wall.Name != w.Name {
				t.Errorf("%s, %s: %v", w.Name, name, err)
			}
		}
	}
	for _, output := range []string{"", "\n", whole() + "more\n", whole() + whole()} {
		if Judge(output) == nil {
			t.Errorf("%q proves something", output)
		}
	}
}

// Outside of a cell there are no walls, and each attempt says so: what it tells in
// a cell is not its own idea. The capabilities of an ordinary user are none
// anywhere; packets to an address of others are not sent.
func TestNoWallOutside(t *testing.T) {
	tried := attempts(os.Getpid())
	for _, w := range Walls() {
		if w.Name == "capabilities" || w.Name == "packet rules" {
			continue
		}
		if got := tried[w.Name](); got == w.Want {
			t.Errorf("%s holds outside of a cell: %s", w.Name, got)
		}
	}
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if got := answer(sys.AskAddress(netip.MustParseAddrPort(l.Addr().String()))); got != "done" {
		t.Errorf("a listener that nothing refuses: %s", got)
	}
}

func TestTryTellsEveryWall(t *testing.T) {
	said := map[string]func() string{}
	for _, w := range Walls() {
		said[w.Name] = func() string { return w.Want }
	}
	var out bytes.Buffer
	if err := tell(&out, said); err != nil {
		t.Fatal(err)
	}
	if err := Judge(out.String()); err != nil {
		t.Error(err)
	}
}
