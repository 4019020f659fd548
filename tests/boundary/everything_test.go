package boundary

import (
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"skep.dev/skep/internal/testlab"
)

// TestBG28ProgramThatTriesEverything: a program in a cell tries every address of the
// host, the daemon's sockets, the metadata address, a name that no rule lists, a
// listed name on another port, and listed names that lead to the host. It gets
// nothing, nothing arrives, and all that left its loopback is recorded with a reason.
func TestBG28ProgramThatTriesEverything(t *testing.T) { testlab.Test(t, triesEverything) }

func triesEverything(t *testing.T, lab *testlab.Lab) {
	const port, other = "7080", "7081"
	lab.Host("listed.test", "93.184.216.34")
	lab.Host("unlisted.test", "93.184.216.34")
	lab.Host("loopback.test", "127.0.0.1", "::1")
	lab.Host("metadata.test", "169.254.169.254")
	lab.Host("own.test", testlab.Own.String(), testlab.Own6.String())
	h := open(t, lab, `net:
  - {name: listed.test, ports: [7080]}
  - {name: loopback.test, ports: [7080]}
  - {name: metadata.test, ports: [7080]}
  - {name: own.test, ports: [7080]}
`)
	h.Skep("ps") // the daemon and its sockets are there before the cell

	lab.Echo("93.184.216.34:" + port)
	lab.Echo("93.184.216.34:" + other)
	addresses := append(interfaces(t), netip.MustParseAddr("169.254.169.254"), netip.MustParseAddr("fd00:ec2::254"))
	tries := []attempt{{How: "tcp", At: "listed.test:" + port}}
	for _, a := range addresses {
		at := netip.AddrPortFrom(a, 7080).String()
		lab.Echo(at)
		lab.UDPEcho(at)
		tries = append(tries, attempt{How: "tcp", At: at}, attempt{How: "udp", At: at})
	}
	for _, at := range []string{"unlisted.test:" + port, "listed.test:" + other, "loopback.test:" + port, "metadata.test:" + port, "own.test:" + port, "93.184.216.34:" + port} {
		tries = append(tries, attempt{How: "tcp", At: at})
	}
	for _, path := range sockets(t, h.Dir) {
		tries = append(tries, attempt{How: "unix", At: path})
	}
	results := h.try(tries...)
	record := h.record()

	if results[0].Err != "" || results[0].Got != "hello" {
		t.Errorf("what is allowed does not work, so the rest proves nothing: %+v", results[0])
	}
	for _, r := range results[1:] {
		if r.reached() {
			t.Errorf("%s to %s got something: %+v", r.How, r.At, r)
		}
		if r.Err == "timeout" {
			t.Errorf("%s to %s is silent: a refusal is told at once", r.How, r.At)
		}
	}
	if got := h.arrived(0); !slices.Equal(got, []string{"93.184.216.34:" + port}) {
		t.Errorf("what arrived: %v", got)
	}
	if d := lab.Datagrams(); len(d) != 0 {
		t.Errorf("datagrams arrived: %v", d)
	}
	if lab.Asked("unlisted.test", "A")+lab.Asked("unlisted.test", "AAAA") != 0 {
		t.Error("a name that no rule lists was asked for outside")
	}
	for _, a := range addresses {
		at := netip.AddrPortFrom(a, 7080).String()
		if a.IsLoopback() { // the cell's own: nobody listens there, and nothing left
			for _, e := range record {
				if e.destination() == at {
					t.Errorf("the cell's own loopback is in the record: %v", e)
				}
			}
			continue
		}
		for _, transport := range []string{"tcp", "udp"} {
			if !slices.ContainsFunc(record, func(e entry) bool {
				return e.destination() == at && e.Body["transport"] == transport && e.Body["reason"] == "ip-not-on-allowlist"
			}) {
				t.Errorf("%s/%s is not in the record with its reason", at, transport)
			}
		}
	}
	h.refused(record, "unlisted.test:"+port, "not-on-allowlist")
	h.refused(record, "listed.test:"+other, "port-not-allowed")
	for _, name := range []string{"loopback.test:", "metadata.test:", "own.test:"} {
		h.refused(record, name+port, "resolved-address-denied")
	}
	h.refused(record, "93.184.216.34:"+port, "ip-not-on-allowlist")
}

// interfaces is every address that the host has.
func interfaces(t *testing.T) []netip.Addr {
	t.Helper()
	all, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	var out []netip.Addr
	for _, a := range all {
		p, err := netip.ParsePrefix(a.String())
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, p.Addr())
	}
	if !slices.ContainsFunc(out, netip.Addr.IsLoopback) || !slices.Contains(out, testlab.Own) {
		t.Fatalf("the lab's host has %v", out)
	}
	return out
}

// sockets is every Unix socket below a directory, and every one with an abstract name
// that can be seen where the daemon runs.
func sockets(t *testing.T, dir string) []string {
	t.Helper()
	raw, err := os.ReadFile("/proc/net/unix")
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for line := range strings.Lines(string(raw)) {
		fields := strings.Fields(line)
		if path := fields[len(fields)-1]; strings.HasPrefix(path, "@") || strings.HasPrefix(path, dir+"/") {
			out = append(out, path)
		}
	}
	for _, name := range []string{"api.sock", "fd.sock"} {
		if path := filepath.Join(dir, "run", name); !slices.Contains(out, path) {
			t.Errorf("skepd has no %s among %v", path, out)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
