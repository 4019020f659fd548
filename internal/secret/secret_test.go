package secret

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"skep.dev/skep/internal/flow"
)

const (
	mark  = "skep-secret-gh-0123abcd"
	value = `v4l"ue+/=\secret`
)

func bind(t testing.TB, change func(*Binding)) *Keeper {
	t.Helper()
	b := Binding{Name: "gh", Source: Source{File: "/k"}, Hosts: []string{"api.test"}, As: []Place{{Kind: Bearer}, {Kind: Basic}}}
	if change != nil {
		change(&b)
	}
	b, err := NewBinding(b)
	if err != nil {
		t.Fatal(err)
	}
	k, err := NewKeeper([]Bound{{b, mark}})
	if err != nil {
		t.Fatal(err)
	}
	v, err := NewValue([]byte(value + "\n"))
	if err != nil {
		t.Fatal(err)
	}
	k.Set("gh", v, time.Time{})
	return k
}

func as(places ...string) func(*Binding) {
	return func(b *Binding) {
		b.As = nil
		for _, p := range places {
			place, err := ParsePlace(p)
			if err != nil {
				panic(err)
			}
			b.As = append(b.As, place)
		}
	}
}

func head(t testing.TB, target string, fields ...string) Head {
	t.Helper()
	h, why := ReadHead([]byte("GET " + target + " HTTP/1.1\r\nHost: api.test\r\n" + strings.Join(append(fields, "\r\n"), "\r\n")))
	if why != flow.None {
		t.Fatal(why.Token())
	}
	return h
}

func testTime() time.Time { return time.Unix(1e9, 0) }

func basic(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

// What arrives in each place, and that it arrives nowhere else (BS-1, BS-3).
func TestPlaces(t *testing.T) {
	for _, c := range []struct {
		as, target, field string
		want              string // in the head that goes on; or a reason
	}{
		{"bearer", "/", "Authorization: Bearer " + mark, "Authorization: Bearer " + value + "\r\n"},
		{"bearer", "/", "authorization: bearer  " + mark, "bearer  " + value},
		{"bearer", "/", "Authorization: Bearer x" + mark, "secret-misplaced"},
		{"bearer", "/", "Authorization: Token " + mark, "secret-misplaced"},
		{"bearer", "/", "Authorization: Basic " + basic("a:"+mark), "secret-misplaced"},
		{"bearer", "/", "X-Authorization: Bearer " + mark, "secret-misplaced"},
		{"basic", "/", "Authorization: Basic " + basic("a:"+mark), "Basic " + basic("a:"+value) + "\r\n"},
		{"basic", "/", "Authorization: Basic " + basic(mark+":x-oauth-basic"), "Basic " + basic(value+":x-oauth-basic") + "\r\n"},
		{"basic", "/", "Authorization: Bearer " + mark, "secret-misplaced"},
		{"basic", "/", "Authorization: Basic " + basic(mark), "secret-misplaced"},
		{"basic", "/", "X: " + basic("a:"+mark), "secret-misplaced"},
		{"header:X-Key", "/", "x-key: a " + mark, "x-key: a " + value},
		{"header:X-Key", "/", "Cookie: a=" + mark, "secret-misplaced"},
		{"header:X-Key", "/", "User-Agent: " + mark, "secret-misplaced"},
		{"query:key", "/p?a=b&key=" + mark + "&c", "X: y", "/p?a=b&key=" + string(percent([]byte(value))) + "&c "},
		{"query:key", "/p?k%65y=" + mark, "X: y", "secret-misplaced"},
		{"query:key", "/p?other=" + mark, "X: y", "secret-misplaced"},
		{"query:key", "/" + mark, "X: y", "secret-misplaced"},
		{"bearer", "/?key=" + mark, "X: y", "secret-misplaced"},
		{"bearer", "/", mark + ": x", "secret-misplaced"},
		{"bearer", "/", "X: skep-secret-other-01234567", "secret-unknown"},
		{"bearer", "/", "X: skep-secret-gh-01234567", "secret-unknown"},
		{"bearer", "/", "X: skep-secret-gh", "X: skep-secret-gh"},
		{"bearer", "/", "X: ordinary", "X: ordinary"},
	} {
		h := head(t, c.target, c.field)
		out, uses, why := bind(t, as(c.as)).Head("api.test", 443, time.Now(), h)
		got := why.Token()
		if why == flow.None {
			got = string(out.Bytes())
		}
		if !strings.Contains(got, c.want) {
			t.Errorf("%s, %s, %s: %q, want %q", c.as, c.target, c.field, got, c.want)
		}
		if why == flow.None && len(uses) != strings.Count(c.target+c.field, mark)+strings.Count(c.field, "Basic") {
			t.Errorf("%s, %s: %d uses", c.as, c.field, len(uses))
		}
		if why != flow.None && strings.Contains(string(out.Bytes()), value) {
			t.Errorf("%s: a refused head has the value", c.field)
		}
		if strings.Contains(string(h.Bytes()), value) {
			t.Errorf("%s: the agent's own head has the value", c.field)
		}
	}
}

// Another host, port or path gets nothing (BS-4, BS-5, BS-6).
func TestOtherDestinations(t *testing.T) {
	k := bind(t, func(b *Binding) { b.Path = "/v1" })
	for _, c := range []struct {
		host   string
		port   uint16
		target string
		want   flow.Reason
	}{
		{"api.test", 443, "/v1", flow.None}, {"api.test", 443, "/v1/a?b", flow.None},
		{"api.test", 443, "/v10", flow.SecretNotBound}, {"api.test", 443, "/", flow.SecretNotBound},
		{"api.test", 443, "/v1/../x", flow.SecretNotBound}, {"api.test", 443, "/v1/%2e%2e/x", flow.SecretNotBound}, {"api.test", 443, "/v1/..%2fx", flow.SecretNotBound},
		{"api.test", 8443, "/v1", flow.SecretNotBound}, {"a.api.test", 443, "/v1", flow.SecretNotBound}, {"test", 443, "/v1", flow.SecretNotBound},
	} {
		for _, field := range []string{"Authorization: Bearer " + mark, "Authorization: Basic " + basic("a:"+mark)} {
			_, _, why := k.Head(c.host, c.port, time.Now(), head(t, c.target, field))
			if why != c.want {
				t.Errorf("%s:%d%s, %s: %q, want %q", c.host, c.port, c.target, field, why.Token(), c.want.Token())
			}
		}
	}
	if !k.Bound("api.test", 443) || k.Bound("api.test", 80) || k.Bound("test", 443) || (&Keeper{}).Bound("api.test", 443) {
		t.Error("another flow than the bound one is read")
	}
}

// The agent's own header is gone, however it is spelled.
func TestSet(t *testing.T) {
	k := bind(t, func(b *Binding) { as("header:x-key")(b); b.Set = true })
	out, uses, why := k.Head("api.test", 443, time.Now(), head(t, "/", "X-Key: mine", "x-KEY: also"))
	if text := string(out.Bytes()); why != flow.None || len(uses) != 1 || strings.Count(strings.ToLower(text), "x-key") != 1 || !strings.Contains(text, "x-key: "+value) {
		t.Errorf("%q %q", text, why.Token())
	}
	if out, _, _ := k.Head("b.test", 443, time.Now(), head(t, "/")); strings.Contains(string(out.Bytes()), value) {
		t.Error("another host has the header")
	}
}

func TestBodies(t *testing.T) {
	quoted, _ := json.Marshal(value)
	for _, c := range []struct{ as, media, body, want string }{
		{"json:token", "application/json; charset=utf-8", `{"a":[1], "token" : "` + mark + `","b":null}`, `{"a":[1], "token" : ` + string(quoted) + `,"b":null}`},
		{"json:token", "application/json", `{"t\u006fken":"` + mark + `"}`, `{"t\u006fken":` + string(quoted) + `}`},
		{"json:token", "application/json", `{"a":{"token":"` + mark + `"}}`, "secret-misplaced"},
		{"json:token", "application/json", `{"other":"` + mark + `"}`, "secret-misplaced"},
		{"json:token", "application/json", `{"` + mark + `":"token"}`, "secret-misplaced"},
		{"json:token", "application/json", `[{"token":"` + mark + `"}]`, "secret-misplaced"},
		{"json:token", "application/json", `{"token":"` + mark + `"} x`, "secret-misplaced"},
		{"json:token", "application/json", `{"token":["` + mark + `"]}`, "secret-misplaced"},
		{"json:token", "text/plain", `{"token":"` + mark + `"}`, "secret-misplaced"},
		{"form:token", "application/json", `{"token":"` + mark + `"}`, "secret-misplaced"},
		{"form:token", "application/x-www-form-urlencoded", "a=b&token=" + mark, "a=b&token=" + string(percent([]byte(value)))},
		{"form:token", "application/x-www-form-urlencoded", "a=" + mark + "&token=b", "secret-misplaced"},
		{"json:token", "application/json", `{"n": 1}`, `{"n": 1}`},
		{"json:token", "application/json", ``, ``},
		{"json:token", "application/json", strings.Repeat(" ", MaxBody+1), "secret-too-large"},
	} {
		k, h := bind(t, as(c.as)), head(t, "/", "Content-Type: "+c.media)
		body, _, why := k.Body("api.test", 443, time.Now(), h, []byte(c.body))
		got := string(body)
		if why != flow.None {
			got = why.Token()
		}
		if got != c.want {
			t.Errorf("%s as %s: %q, want %q", c.media, c.as, got, c.want)
		}
		if _, misuse, why := k.Body("b.test", 443, time.Now(), h, []byte(c.body)); strings.Contains(c.body, mark) && (why != flow.SecretNotBound || misuse[0].Secret != "gh") {
			t.Errorf("another host: %q", why.Token())
		}
	}
	k := bind(t, as("json:token"))
	if !k.InBody("api.test", 443, head(t, "/", "content-type: application/json")) || k.InBody("api.test", 443, head(t, "/", "content-type: application/json", "content-encoding: gzip")) ||
		k.InBody("b.test", 443, head(t, "/", "content-type: application/json")) || k.InBody("api.test", 443, head(t, "/")) {
		t.Error("a body that no place is in is read whole")
	}
}

// A value is used until its end, replaced between two requests, and wiped (B131, BS-14).
func TestRefresh(t *testing.T) {
	k, now := bind(t, nil), time.Now()
	ask := func() string {
		out, _, why := k.Head("api.test", 443, now, head(t, "/", "Authorization: Bearer "+mark))
		if why != flow.None {
			return why.Token()
		}
		return out.value("Authorization")
	}
	fresh := func() *Value {
		v, err := NewValue([]byte("another-one"))
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	old := k.values["gh"].Value
	under := old.b
	k.Set("gh", fresh(), now.Add(time.Second))
	if got := ask(); got != "Bearer another-one" {
		t.Error(got)
	}
	if strings.Trim(string(under), "\x00") != "" || old.b != nil {
		t.Error("the old value is still in memory")
	}
	now = now.Add(time.Second)
	if got := ask(); got != "secret-unavailable" {
		t.Error("past its end:", got)
	}
	k.Set("gh", nil, time.Time{})
	if got := ask(); got != "secret-unavailable" {
		t.Error("without a value:", got)
	}
	k.Set("gh", fresh(), time.Time{})
	k.Set("nobody", fresh(), time.Time{})
	k.Close()
	if got := ask(); got != "secret-unavailable" || len(k.values) != 0 {
		t.Error("closed:", got)
	}
}

func TestValueIsNotWritten(t *testing.T) {
	v, err := NewValue([]byte("very-hidden\r\n"))
	if err != nil || string(v.b) != "very-hidden" {
		t.Fatal(err)
	}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		if text := fmt.Sprintf(verb, v) + fmt.Sprintf(verb, held{Value: v}); strings.Contains(text, "very") || strings.Contains(text, "76657279") || strings.Contains(text, "118") {
			t.Error(verb, text)
		}
	}
	if text, err := json.Marshal(v); err == nil {
		t.Error(string(text))
	}
	for _, bad := range []string{"", "short", "two\nlines", "nul\x00nulnul", "latin\xe9xx", " in spaces ", strings.Repeat("x", MaxValue+1)} {
		if _, err := NewValue([]byte(bad)); err == nil || bad != "" && strings.Contains(err.Error(), bad) {
			t.Errorf("%.20q: %v", bad, err)
		}
	}
}

func TestBindingFaults(t *testing.T) {
	for name, change := range map[string]func(*Binding){
		"1 to 64":              func(b *Binding) { b.Name = "a.b" },
		"eight hexadecimal":    func(b *Binding) { b.Name = "a-01234567-b" },
		"one source":           func(b *Binding) { b.Source.Env = "X" },
		"want one source":      func(b *Binding) { b.Source = Source{} },
		"no name of a":         func(b *Binding) { b.Env = "1X" },
		"want hosts":           func(b *Binding) { b.Hosts = nil },
		"exact host names":     func(b *Binding) { b.Hosts = []string{"*.test"} },
		"reads as an address":  func(b *Binding) { b.Hosts = []string{"127.0.0.1"} },
		"byte ':'":             func(b *Binding) { b.Hosts = []string{"::1"} },
		"ports from 1":         func(b *Binding) { b.Ports = []uint16{0} },
		"without *":            func(b *Binding) { b.Path = "/a/*" },
		"want the places":      func(b *Binding) { b.As = nil },
		"a place that is none": func(b *Binding) { b.As = []Place{{}} },
		"one header":           func(b *Binding) { b.Set = true },
	} {
		b := Binding{Name: "gh", Source: Source{File: "/k"}, Hosts: []string{"api.test"}, As: []Place{{Kind: Bearer}, {Kind: Basic}}}
		change(&b)
		if _, err := NewBinding(b); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%v, want %s", err, name)
		}
	}
	for _, place := range []string{"", "ws:x", "sigv4", "mtls", "cookie", "bearer:x", "header:", "header:Host", "header:Content-Length", "header:a b", "query:", "query:a&b", "json:a.b", "header:Proxy-Authorization"} {
		if _, err := ParsePlace(place); err == nil {
			t.Errorf("place %q is taken", place)
		}
	}
	for _, source := range []string{"", "ghp_verysecret", "env:", "env:A B", "file:", "literal:verysecret"} {
		if _, err := ParseSource(source); err == nil || strings.Contains(err.Error(), "verysecret") {
			t.Errorf("source %q: %v", source, err)
		}
	}
	b := Binding{Name: "gh", Source: Source{Env: "X"}, Hosts: []string{"B.test.", "a.test", "b.test"}, As: []Place{{Kind: Basic}, {Kind: Bearer}, {Kind: Basic}}}
	b, err := NewBinding(b)
	if got := fmt.Sprintf("%v %v %v %v %v", b.Hosts, b.Ports, b.Path, b.As, b.Source); err != nil || got != "[a.test b.test] [443] / [basic bearer] env:X" {
		t.Error(got, err)
	}
	for _, p := range []string{"", mark + "f", "skep-secret-other-01234567", "skep-secret-gh-0123456g"} {
		if _, err := NewKeeper([]Bound{{b, p}}); err == nil {
			t.Errorf("placeholder %q is taken", p)
		}
	}
	if p := b.NewPlaceholder(); first([]byte(p)) != p || p == b.NewPlaceholder() {
		t.Error(p)
	}
}
