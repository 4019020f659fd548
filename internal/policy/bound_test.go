package policy

import (
	"strings"
	"testing"

	"skep.dev/skep/internal/flow"
)

// TestBoundNames: to a name and port with a secret nothing goes but TLS to that name, whose
// requests are judged one by one, and every other flow is as it was (B83, B123).
func TestBoundNames(t *testing.T) {
	p := Policy{
		Rules: []Rule{
			{ID: "a", Name: "a.test", Ports: ports(t, "443"), TCP: true, UDP: true},
			{ID: "b", Name: "b.test", Ports: ports(t, "443"), TCP: true, Methods: []string{"GET"}, Paths: []string{"/r/*"}},
			{ID: "c", Name: "c.test", Ports: ports(t, "443"), TCP: true, UDP: true},
		},
		Bound: []Bound{{Name: "a.test", Ports: []uint16{443}}, {Name: "b.test", Ports: []uint16{443}}},
	}
	if err := p.Check(); err != nil {
		t.Fatal(err)
	}
	hello := func(host, method, path string) flow.Verdict {
		q := out(host, 443)
		q.Inner = flow.Inner{Protocol: flow.TLS, Name: host, Method: method, Path: path}
		return DecideInner(q, p)
	}
	for _, c := range []struct {
		host, method, path string
		want               flow.Reason
	}{
		{"a.test", "", "", flow.None}, {"a.test", "PUT", "/x", flow.None}, {"b.test", "", "", flow.None}, {"b.test", "GET", "/r/1", flow.None},
		{"b.test", "PUT", "/r/1", flow.MethodNotAllowed}, {"b.test", "GET", "/x", flow.PathNotAllowed}, {"b.test", "GET", "/r/../x", flow.PathAmbiguous},
	} {
		if v := hello(c.host, c.method, c.path); v.Reason != c.want || v.Allowed() != (c.want == flow.None) {
			t.Errorf("%s %s%s: %+v, want %s", c.method, c.host, c.path, v, c.want.Token())
		}
	}
	for host, want := range map[string]bool{"a.test": true, "c.test": false} {
		for _, in := range []flow.Inner{{Protocol: flow.Opaque}, {Protocol: flow.HTTP, Name: host}, {}} {
			q := out(host, 443)
			q.Inner = in
			if v := DecideInner(q, p); want && v.Reason != flow.TLSRequired {
				t.Errorf("%s as %v: %+v", host, in, v)
			}
		}
		q := out(host, 443)
		if got := Intercepted(q, p); got != want || want && Inspect(q, p) != WantFirst {
			t.Errorf("%s: intercepted %v", host, got)
		}
		q.Transport = flow.UDP
		if v := Decide(q, p); v.Allowed() == want || want && v.Reason != flow.TransportNotAllowed {
			t.Errorf("datagrams to %s: %+v", host, v)
		}
		if got := len(Ports(host, flow.UDP, p)) == 0; got != want {
			t.Errorf("the early gate lets datagrams to %s pass: %v", host, !got)
		}
	}
}

func TestBoundFaults(t *testing.T) {
	for want, p := range map[string]Policy{
		"requests that can be read": {Rules: []Rule{{ID: "r", Suffix: "a.test", Ports: ports(t, "443"), TCP: true, Methods: []string{"GET"}}}, Bound: []Bound{{Name: "x.a.test", Ports: []uint16{443}}}},
		"normal form":               {Bound: []Bound{{Name: "A.test", Ports: []uint16{443}}}},
		"without a port":            {Bound: []Bound{{Name: "a.test"}}},
	} {
		if err := p.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
