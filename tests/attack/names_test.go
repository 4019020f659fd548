package attack

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"skep.dev/skep/internal/testlab"
)

// TestNamesAndPorts: through daemon and box, a cell reaches what its rules name
// and nothing else: no other name, no other port, no address, and no listed name
// that leads to an address of the host (B80, B100 to B106, B112).
func TestNamesAndPorts(t *testing.T) { testlab.Test(t, namesAndPorts) }

const rules = `net:
  - {name: ok.example, ports: [80, 8443]}
  - {name: other.example, ports: [80]}
  - {name: loopback.example, ports: [7080]}
  - {name: metadata.example, ports: [80]}
  - {name: private.example, ports: [80]}
  - {name: own.example, ports: [80]}
  - {name: mapped.example, ports: [80]}
  - {name: rebind.example, ports: [80]}
  - {name: "*.wild.example", ports: [80]}
`

func namesAndPorts(t *testing.T, lab *testlab.Lab) {
	const secret = "the-secret-of-the-lab"
	tell := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, secret) })
	for _, at := range []string{
		"8.8.8.8:80", "8.8.8.8:8080", "8.8.8.8:443", "1.1.1.1:80", "127.0.0.1:7080", "169.254.169.254:80", "10.0.0.1:80",
		"77.88.55.60:80", "[2606:4700:4700::1111]:80", "[::1]:7080",
	} {
		lab.HTTP(at, tell)
	}
	for name, addrs := range map[string][]string{
		"ok.example": {"8.8.8.8"}, "other.example": {"1.1.1.1"}, "unlisted.example": {"1.1.1.1", "2606:4700:4700::1111"},
		"loopback.example": {"127.0.0.1", "::1"}, "metadata.example": {"169.254.169.254"}, "private.example": {"10.0.0.1"},
		"own.example": {testlab.Own.String()}, "mapped.example": {"::ffff:127.0.0.1", "::ffff:10.0.0.1"},
		"wild.example": {"1.1.1.1"}, "notwild.example": {"1.1.1.1"}, "a.wild.example": {"8.8.8.8"},
	} {
		lab.Host(name, addrs...)
	}
	// A public address first, and loopback ever after: whoever asks twice is led inside.
	lab.Script("rebind.example", testlab.Answer{Addrs: testlab.Addrs("4.4.4.4")}, testlab.Answer{Addrs: testlab.Addrs("127.0.0.1")})
	lab.HTTPS("8.8.8.8:8443", tell)
	open := []string{
		"ok.example,80", "a.wild.example,80", "other.example,80", "ok.example,8443,tls-ok.example", "ok.example,8443,split-OK.example",
	}
	closed := []string{
		"unlisted.example,80", "wild.example,80", "notwild.example,80", "ok.example,8080", "ok.example,443",
		"loopback.example,7080", "metadata.example,80", "private.example,80", "own.example,80", "ok.example,80,other.example",
		"ok.example,8443,tls-other.example", "ok.example,8443,split-other.example", "ok.example,8443,tls-",
		"127.0.0.1,7080", "::1,7080", "169.254.169.254,80", "10.0.0.1,80", "77.88.55.60,80", "8.8.8.8,80", "1.1.1.1,80",
		"2606:4700:4700::1111,80",
	}
	// These have no honest answer outside: no server stands at 4.4.4.4, and a mapped address is none of DNS.
	tricks := []string{"rebind.example,80", "mapped.example,80"}
	everything := slices.Concat([]string{secret}, open, closed)

	for _, o := range (attack{technique: "names", outside: everything}).tryOutside(t) {
		if o.verdict != escaped {
			t.Errorf("%s does not answer outside, so it proves nothing: %s", o.name, o.why)
		}
	}
	asked, reached := len(lab.Queries()), len(lab.Connections())

	s := install(t, lab)
	s.start()
	got := s.attack(s.profile(rules), "names", append(everything, tricks...)...)
	for _, i := range got {
		switch listed := slices.Contains(open, i.name); {
		case listed && i.verdict != escaped:
			t.Errorf("%s is allowed, and does not answer: %s", i.name, i.why)
		case !listed && i.verdict != held:
			t.Errorf("%s answers the cell", i.name)
		}
	}
	for _, c := range lab.Connections()[reached:] {
		if at := c.To.String(); at != "8.8.8.8:80" && at != "1.1.1.1:80" && at != "8.8.8.8:8443" {
			t.Errorf("the box connected to %s", at)
		}
		if strings.Contains(string(c.First), "other.example") && c.To.Addr().String() == "8.8.8.8" {
			t.Errorf("a request for another name went upstream: %q", c.First)
		}
	}
	for _, q := range lab.Queries()[asked:] {
		if slices.Contains([]string{"unlisted.example", "wild.example", "notwild.example"}, q.Name) {
			t.Errorf("%s was looked up outside, though no rule names it (B101)", q.Name)
		}
	}
	entries := s.ledger()
	flows := 0
	for _, e := range entries {
		if e.Kind == "flow.intent" && e.Body["destination"] == "rebind.example" {
			flows++
		}
	}
	if n := lab.Asked("rebind.example", "A"); n != flows || n == 0 {
		t.Errorf("rebind.example was asked for %d times in %d flows, want once for each (B103)", n, flows)
	}
	recorded(t, entries, map[string]string{
		"unlisted.example:80": "not-on-allowlist", "wild.example:80": "not-on-allowlist", "notwild.example:80": "not-on-allowlist",
		"ok.example:8080": "port-not-allowed", "ok.example:443": "port-not-allowed",
		"loopback.example:7080": "resolved-address-denied", "metadata.example:80": "resolved-address-denied",
		"private.example:80": "resolved-address-denied", "own.example:80": "resolved-address-denied",
		"ok.example:80":      "http-host-mismatch",
		"ok.example:8443":    "tls-name-mismatch",
		"169.254.169.254:80": "ip-not-on-allowlist", "10.0.0.1:80": "ip-not-on-allowlist", "77.88.55.60:80": "ip-not-on-allowlist",
		"8.8.8.8:80": "ip-not-on-allowlist", "[2606:4700:4700::1111]:80": "ip-not-on-allowlist",
	})
	recorded(t, entries, map[string]string{"ok.example:8443": "tls-name-missing"})
}

// recorded checks that each refusal stands in the ledger with its reason.
func recorded(t *testing.T, entries []entry, want map[string]string) {
	t.Helper()
	for destination, reason := range want {
		if !slices.ContainsFunc(entries, func(e entry) bool {
			return strings.HasPrefix(e.Kind, "flow.") && at(e) == destination && e.Body["reason"] == reason
		}) {
			t.Errorf("the ledger does not say that %s was refused as %s", destination, reason)
		}
	}
	if t.Failed() {
		for _, e := range entries {
			t.Log(e.Kind, at(e), e.Body["reason"], e.Body["decision"], e.Body["address"])
		}
	}
}

func at(e entry) string {
	return net.JoinHostPort(fmt.Sprint(e.Body["destination"]), fmt.Sprint(e.Body["port"]))
}
