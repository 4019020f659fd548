package secret

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"skep.dev/skep/internal/flow"
)

// encodings are the ways in which a client may write a text down.
func encodings() map[string]func(string) string {
	all := func(form string) func(string) string {
		return func(s string) string {
			var b strings.Builder
			for _, c := range []byte(s) {
				fmt.Fprintf(&b, form, c)
			}
			return b.String()
		}
	}
	lines := func(s string, end string) string {
		var b strings.Builder
		for part := range slices.Chunk([]byte(base64.StdEncoding.EncodeToString([]byte(s))), 76) {
			b.Write(append(part, end...))
		}
		return b.String()
	}
	return map[string]func(string) string{
		"plain": func(s string) string { return s }, "query": url.QueryEscape, "percent": all("%%%02x"), "PERCENT": all("%%%02X"), "json": all(`\u%04x`),
		"base64":            func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) },
		"url":               func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) },
		"base64 in a query": func(s string) string { return url.QueryEscape(base64.StdEncoding.EncodeToString([]byte(s))) },
		"base64 in percent": func(s string) string { return all("%%%02x")(base64.StdEncoding.EncodeToString([]byte(s))) },
		"base64 in JSON":    func(s string) string { return all(`\u%04x`)(base64.StdEncoding.EncodeToString([]byte(s))) },
		"base64 in lines":   func(s string) string { return lines(s, "\r\n") },
		"a PEM in JSON":     func(s string) string { return lines(s, `\n`) },
	}
}

// A placeholder is found in each encoding, at each alignment, between any text, however
// it is cut into pieces (BS-4).
func TestFoundEverywhere(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.StringMatching(`[A-Za-z0-9_]([A-Za-z0-9_-]{0,62}[A-Za-z0-9_])?`).Draw(t, "name")
		placeholder := prefix + name + "-" + rapid.StringMatching(`[0-9a-f]{8}`).Draw(t, "digits")
		if first([]byte(placeholder)) != placeholder {
			t.Skip("no name")
		}
		texts := encodings()
		kind := rapid.SampledFrom(slices.Sorted(func(yield func(string) bool) {
			for k := range texts {
				if !yield(k) {
					return
				}
			}
		})).Draw(t, "encoding")
		inner := rapid.StringN(0, 40, -1)
		text := texts[kind](inner.Draw(t, "before") + placeholder + inner.Draw(t, "after"))
		text = rapid.StringN(0, 2000, -1).Draw(t, "front") + "," + text + rapid.StringN(0, 50, -1).Draw(t, "back")
		var f Finder
		var found []string
		for rest := []byte(text); len(rest) > 0; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "piece")
			if rapid.Bool().Draw(t, "small") {
				n = min(n, 3)
			}
			found = append(found, f.Feed(rest[:n])...)
			rest = rest[n:]
		}
		if !slices.Contains(found, placeholder) {
			t.Errorf("%s: %q is not found in %q, but %q", kind, placeholder, text, found)
		}
	})
}

func TestNothingIsFoundInOrdinaryText(t *testing.T) {
	for _, text := range []string{
		"", "skep-secret-", "skep-secret-NAME- and 8 hex digits", "skep-secret--01234567", "skep-secret-x-0123456", "skep-secret-x-0123456G",
		"SKEP-SECRET-x-01234567", "skep secret x 01234567", strings.Repeat("%", 5000), strings.Repeat(`\u`, 5000), strings.Repeat("c2tlcC1zZWNyZXQt", 500),
	} {
		if found := find([]byte(text)); len(found) > 0 {
			t.Errorf("%.40q: %q", text, found)
		}
	}
}

// One that is in no place refuses the text that comes with it, wherever it is cut.
func TestStray(t *testing.T) {
	k := bind(t, func(b *Binding) { b.End = true })
	for at, want := range map[At]flow.Reason{
		{"api.test", 443, "/"}: flow.SecretMisplaced, {"api.test", 80, "/"}: flow.SecretNotBound, {"b.test", 443, "/"}: flow.SecretNotBound,
	} {
		for cut := range len(mark) {
			s := k.Stray(at)
			if why, _ := s.Feed([]byte("x" + mark[:cut])); why != flow.None {
				t.Fatal(why.Token())
			}
			why, use := s.Feed([]byte(mark[cut:]))
			if why != want || use.Secret != "gh" || !use.End {
				t.Errorf("%v: %q %v", at, why.Token(), use)
			}
		}
	}
	if why, _ := (&Keeper{}).Stray(At{}).Feed([]byte(mark)); why != flow.SecretUnknown {
		t.Error("the zero keeper knows a secret")
	}
}

// Nothing that is fed in any pieces and has the value passes whole (BS-11).
func TestReflected(t *testing.T) {
	k := bind(t, nil)
	for _, form := range []string{value, string(percent([]byte(value))), string(quote([]byte(value)))} {
		for cut := range len(form) + 1 {
			w := k.Watch("api.test", 443)
			front := `{"a": "` + form[:3]
			one, err := w.Feed([]byte(front + form[:cut]))
			passed := string(one)
			if err == nil {
				one, err = w.Feed([]byte(form[cut:] + `"}`))
				passed += string(one)
			}
			if err == nil || strings.Contains(passed, form) {
				t.Errorf("cut at %d: %q passes", cut, passed)
			}
			w.Close()
		}
	}
	if w := k.Watch("b.test", 443); len(w.forms) != 0 {
		t.Error("another host is watched")
	}
}

func FuzzWatch(f *testing.F) {
	f.Add([]byte("aab"+value), uint8(3))
	f.Add([]byte(value[:5]+value), uint8(1))
	k := bind(f, nil)
	f.Fuzz(func(t *testing.T, text []byte, size uint8) {
		w := k.Watch("api.test", 443)
		var passed []byte
		for part := range slices.Chunk(text, int(size)+1) {
			b, err := w.Feed(slices.Clone(part))
			if passed = append(passed, b...); err != nil {
				if !strings.Contains(string(text), value) && !bytes.Contains(text, percent([]byte(value))) && !bytes.Contains(text, quote([]byte(value))) {
					t.Error("an answer without the value is cut")
				}
				if bytes.Contains(passed, []byte(value)) {
					t.Error("the value has passed")
				}
				return
			}
		}
		if passed = append(passed, w.Rest()...); !bytes.Equal(passed, text) || bytes.Contains(text, []byte(value)) {
			t.Error("not what was fed")
		}
	})
}

// Whatever a cell sends: a value stands on in no other line than its placeholder stood,
// no line is added, and nothing goes on that has a placeholder.
func FuzzHead(f *testing.F) {
	f.Add([]byte("GET /?key=" + mark + " HTTP/1.1\r\nAuthorization: Basic " + basic("a:"+mark) + "\r\nX-Key: " + mark + "\r\n\r\n"))
	f.Add([]byte("GET / HTTP/1.1\r\nAuthorization: Bearer " + mark + "\r\nX: %73kep-secret-gh-0123abcd\r\n\r\n"))
	k := bind(f, as("bearer", "basic", "header:x-key", "query:key"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		h, why := ReadHead(raw)
		if why != flow.None {
			return
		}
		before := string(h.Bytes())
		out, uses, why := k.Head("api.test", 443, testTime(), h)
		if string(h.Bytes()) != before {
			t.Error("the agent's head has changed")
		}
		if why != flow.None {
			return
		}
		text := out.Bytes()
		again, why := ReadHead(text)
		if why != flow.None || len(again.Fields) != len(h.Fields) {
			t.Errorf("%q became %q", raw, text)
		}
		if found := find(text); len(found) > 0 {
			t.Errorf("%q goes on with %q", text, found)
		}
		if len(uses) == 0 && string(text) != before {
			t.Errorf("%q became %q without a use", before, text)
		}
		other, uses, why := k.Head("b.test", 443, testTime(), h)
		if len(uses) > 0 && why == flow.None || string(other.Bytes()) != before && why == flow.None {
			t.Errorf("another host got %q", other.Bytes())
		}
	})
}

func FuzzBody(f *testing.F) {
	f.Add([]byte(`{"token":"`+mark+`"}`), true)
	f.Add([]byte("a=b&token="+mark), false)
	k := bind(f, as("json:token", "form:token"))
	f.Fuzz(func(t *testing.T, body []byte, isJSON bool) {
		h := Head{Method: "POST", Target: []byte("/"), Fields: []Field{{"Content-Type", []byte("application/x-www-form-urlencoded")}}}
		if isJSON {
			h.Fields[0].Value = []byte("application/json")
		}
		out, uses, why := k.Body("api.test", 443, testTime(), h, body)
		if why != flow.None {
			return
		}
		if len(uses) == 0 && !bytes.Equal(out, body) {
			t.Errorf("%q became %q without a use", body, out)
		}
		if found := find(out); len(found) > 0 {
			t.Errorf("%q goes on with %q", out, found)
		}
	})
}
