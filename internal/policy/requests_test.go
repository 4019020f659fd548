package policy

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/right"
)

func asked(host string, port uint16, method, path string) flow.Request {
	q := out(host, port)
	q.Inner = flow.Inner{Protocol: flow.HTTP, Name: host, Method: method, Path: path}
	return q
}

// BC-44 as decisions, with what would allow each refused request.
func TestRequests(t *testing.T) {
	p := setting(t)
	p.Rules = append(p.Rules,
		Rule{ID: "read", Line: 7, Name: "api.test", Ports: ports(t, "80"), TCP: true, Methods: []string{"GET", "HEAD"}, Paths: []string{"/repos/*", "/one"}},
		Rule{ID: "write", Name: "api.test", Ports: ports(t, "8080"), TCP: true, HTTP: true, Methods: []string{"POST"}, Paths: []string{"/x/*"}, EncodedSlash: true},
		Rule{ID: "wide", Suffix: "test", Ports: ports(t, "80"), TCP: true},
		Rule{ID: "hook", Name: "two.test", Ports: ports(t, "80"), TCP: true, Methods: []string{"POST"}},
		Rule{ID: "page", Name: "two.test", Ports: ports(t, "80"), TCP: true, Paths: []string{"/page"}})
	for _, c := range []struct {
		host, method, path string
		port               uint16
		want               flow.Reason
		line               string
	}{
		{"api.test", "GET", "/repos/a/b", 80, flow.None, ""},
		{"api.test", "HEAD", "/one", 80, flow.None, ""},
		{"api.test", "GET", "/repos", 80, flow.PathNotAllowed, "its path among the paths of the rule read in line 7"},
		{"api.test", "DELETE", "/repos/a", 80, flow.MethodNotAllowed, "its method among the methods of the rule read in line 7"},
		{"api.test", "DELETE", "/other", 80, flow.PathNotAllowed, "its path among the paths of the rule read in line 7"},
		{"api.test", "get", "/one", 80, flow.MethodNotAllowed, "its method among the methods of the rule read in line 7"},
		{"api.test", "GET", "/repos/../one", 80, flow.PathAmbiguous, ""},
		{"api.test", "GET", "/repos/%2e%2e/one", 80, flow.PathAmbiguous, ""},
		{"api.test", "GET", "/repos/a%2fb", 80, flow.PathAmbiguous, "encoded_slash: true in the rule read in line 7"},
		{"api.test", "POST", "/x/a%2fb", 8080, flow.None, ""},
		{"api.test", "POST", "/x/..%2fb", 8080, flow.PathAmbiguous, ""},
		{"b.test", "DELETE", "/a/../b", 80, flow.None, ""}, // whose rule looks at no path
		{"two.test", "POST", "/any", 80, flow.None, ""},
		{"two.test", "GET", "/page", 80, flow.None, ""},
		{"two.test", "GET", "/any", 80, flow.MethodNotAllowed, "its method among the methods of the rule hook"},
	} {
		v := DecideInner(asked(c.host, c.port, c.method, c.path), p)
		if v.Reason != c.want || v.Allowed() != (c.want == flow.None) || v.AllowWith != c.line {
			t.Errorf("%s %s:%d%s: %+v, want %s and %q", c.method, c.host, c.port, c.path, v, c.want, c.line)
		}
	}
	p.Ceiling = Ceiling{Limits: true, Allow: []Rule{{ID: "c", Name: AnyName, Ports: ports(t, "80"), TCP: true, HTTP: true, Methods: []string{"GET"}}}}
	if v := DecideInner(asked("two.test", 80, "POST", "/any"), p); v.Reason != flow.MethodNotAllowed || v.AllowWith != NotPermitted {
		t.Errorf("the ceiling does not limit methods: %+v", v)
	}
	if v := DecideInner(asked("two.test", 80, "GET", "/page"), p); !v.Allowed() {
		t.Errorf("%+v", v)
	}
	if Inspect(out("b.test", 80), p) != WantHTTP {
		t.Error("a request that the ceiling judges is not read")
	}
}

func TestRulesThatCannotSeeRequests(t *testing.T) {
	for name, r := range map[string]Rule{
		"TLS port": {Ports: ports(t, "443")}, "two ports": {Ports: ports(t, "80,443")}, "no check": {Ports: ports(t, "80"), Inner: InnerOff},
		"TLS": {Ports: ports(t, "80"), Inner: InnerTLS}, "UDP": {Ports: ports(t, "80"), UDP: true},
	} {
		r.ID, r.Name, r.TCP, r.Methods = "r", "a.test", true, []string{"GET"}
		if err := (Policy{Rules: []Rule{r}}).Check(); err == nil || !strings.Contains(err.Error(), "requests that can be read") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The gate's form of the rules says what the right's meaning is (R1, B80).
func TestRequestsAgreeWithRights(t *testing.T) {
	names := []string{"a.test", "b.a.test"}
	rapid.Check(t, func(t *rapid.T) {
		var p Policy
		var nets right.Nets
		for i := range rapid.IntRange(0, 4).Draw(t, "rules") {
			n := right.Net{Transports: right.TCP, Ports: right.Ports{{First: 80, Last: 80}}}
			n.Methods = rapid.SampledFrom([][]string{nil, {"GET"}, {"GET", "POST"}}).Draw(t, "methods")
			n.Paths = rapid.SampledFrom([][]string{nil, {"/a"}, {"/a/*"}, {"/*"}}).Draw(t, "paths")
			n.EncodedSlash = len(n.Paths) > 0 && rapid.Bool().Draw(t, "slash")
			r := Rule{ID: fmt.Sprint(i), Ports: n.Ports, TCP: true, Methods: n.Methods, Paths: n.Paths, EncodedSlash: n.EncodedSlash}
			var err error
			if host := rapid.SampledFrom([]string{"a.test", "b.a.test", "*", "*.test", "*.a.test"}).Draw(t, "dest"); host == "*" || host[0] != '*' {
				n.Dest, err = right.ParseDestName(host)
				r.Name = host
			} else {
				n.Dest, err = right.ParseDestSuffix(host)
				r.Suffix = host[2:]
			}
			if err == nil {
				n, err = right.NewNet(n)
			}
			if err != nil || r.Check() != nil {
				t.Fatal(err, r.Check())
			}
			nets, p.Rules = append(nets, n), append(p.Rules, r)
		}
		for _, host := range names {
			for _, method := range []string{"GET", "POST", "PUT"} {
				for _, path := range []string{"/a", "/a/b", "/c", "/a/b%2fc", "/a/../c"} {
					_, want := nets.Allows(right.Flow{Name: host, Port: 80, Transport: right.TCP, Method: method, Path: path})
					if got := DecideInner(asked(host, 80, method, path), p).Allowed(); got != want {
						t.Fatalf("%s %s%s: %v, the right says %v\n%v", method, host, path, got, want, nets)
					}
				}
			}
		}
	})
}
