package jcs

import (
	"bytes"
	"encoding/json"
	"math"
	"testing"

	"pgregory.net/rapid"
)

type sample struct {
	Name  Bytes            `json:"name"`
	Count uint64           `json:"count,omitempty"`
	Delta int64            `json:"delta"`
	Set   bool             `json:"set"`
	List  []string         `json:"list"`
	Map   map[string]Bytes `json:"map,omitempty"`
	Next  *sample          `json:"next,omitempty"`
}

// Golden vectors: they hold D2's two rules, and fail if any byte moves.
func TestGolden(t *testing.T) {
	for _, c := range []struct {
		name string
		in   sample
		want string
	}{
		{"zero", sample{}, `{"delta":"0","list":[],"name":"","set":false}`},
		{"integers beyond 2^53", sample{Count: math.MaxUint64, Delta: math.MinInt64, List: []string{"a"}},
			`{"count":"18446744073709551615","delta":"-9223372036854775808","list":["a"],"name":"","set":false}`},
		{"not UTF-8", sample{Name: "a\xff"}, `{"delta":"0","list":[],"name":{"b64":"Yf8="},"set":false}`},
		{"U+0000", sample{Name: "a\x00b"}, `{"delta":"0","list":[],"name":{"b64":"YQBi"},"set":false}`},
		{"escapes", sample{Name: "\b\t\n\f\r\"\\\x1b/<>&\u2028é€"},
			`{"delta":"0","list":[],"name":"\b\t\n\f\r\"\\\u001b/<>&` + "\u2028é€" + `","set":false}`},
		{"UTF-16 order", sample{Map: map[string]Bytes{"\U0001F600": "1", "\ufb33": "2", "z": "3"}},
			`{"delta":"0","list":[],"map":{"z":"3","` + "\U0001F600" + `":"1","` + "\ufb33" + `":"2"},"name":"","set":false}`},
	} {
		got, err := Append(nil, c.in)
		if err != nil || string(got) != c.want {
			t.Errorf("%s: %s, %v\nwant %s", c.name, got, err, c.want)
		}
		if err := Valid(got); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestRefuses(t *testing.T) {
	for _, in := range []string{
		``, ` {}`, `{} `, `{"a":1}`, `1`, `{"b":"","a":""}`, `{"a":"","a":""}`, `{"a" :""}`, `{"a":"",}`, `[,]`, `["a",]`,
		`"\u001B"`, `"\u0041"`, `"\u000a"`, `"\/"`, "\"\x01\"", "\"\xff\"", `"\ud800"`, `"`, `tru`, `{"a":nul}`, `"\u00`, `"\`,
		`{"` + "\ufb33" + `":"","` + "\U0001F600" + `":""}`,
	} {
		if Valid([]byte(in)) == nil {
			t.Errorf("%q was accepted", in)
		}
	}
	deep := bytes.Repeat([]byte("["), maxDepth+2)
	if Valid(append(deep, bytes.Repeat([]byte("]"), maxDepth+2)...)) == nil {
		t.Error("deep nesting was accepted")
	}
	for _, in := range []string{
		`{"delta":"0","list":[],"name":"","set":false,"x":""}`, `{"delta":"0","list":[],"name":""}`,
		`{"delta":"00","list":[],"name":"","set":false}`, `{"delta":"9223372036854775808","list":[],"name":"","set":false}`,
		`{"count":"0","delta":"0","list":[],"name":"","set":false}`, `{"delta":"0","list":[],"name":{"b64":"YQ=="},"set":false}`,
		`{"delta":"0","list":[],"name":{"b64":"/x=="},"set":false}`, `{"delta":"0","list":[],"name":"\u0000","set":false}`,
		`{"delta":"0","list":null,"name":"","set":false}`,
	} {
		var s sample
		if Decode([]byte(in), &s) == nil {
			t.Errorf("%s was decoded", in)
		}
	}
	for _, v := range []any{1.5, struct {
		A any `json:"a"`
	}{1}, "\xff", map[int]string{1: ""}, struct{ A string }{}} {
		if _, err := Append(nil, v); err == nil {
			t.Errorf("%#v was encoded", v)
		}
	}
}

func genSample(t *rapid.T) sample {
	s := sample{
		Name: Bytes(rapid.SliceOf(rapid.Byte()).Draw(t, "name")), Count: rapid.Uint64().Draw(t, "count"),
		Delta: rapid.Int64().Draw(t, "delta"), Set: rapid.Bool().Draw(t, "set"), List: rapid.SliceOf(rapid.String()).Draw(t, "list"),
	}
	if rapid.Bool().Draw(t, "map") {
		s.Map = map[string]Bytes{}
		for k, v := range rapid.MapOf(rapid.String(), rapid.SliceOf(rapid.Byte())).Draw(t, "m") {
			s.Map[k] = Bytes(v)
		}
	}
	return s
}

// Encoding, decoding and encoding again gives the same bytes, valid, and JSON
// that the standard library reads too.
func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := genSample(t)
		a, err := Append(nil, in)
		if err != nil {
			t.Fatal(err)
		}
		if !json.Valid(a) {
			t.Fatalf("not JSON: %s", a)
		}
		var out sample
		if err := Decode(a, &out); err != nil {
			t.Fatalf("%s: %v", a, err)
		}
		if b, _ := Append(nil, out); !bytes.Equal(a, b) {
			t.Fatalf("%s became %s", a, b)
		}
		if out.Name != in.Name {
			t.Fatalf("%q became %q", in.Name, out.Name)
		}
	})
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"delta":"0","list":["\u001f"],"map":{"a":{"b64":"/w=="}},"name":"","set":false}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		valid := Valid(b) == nil
		if valid && !json.Valid(b) {
			t.Fatalf("%q is not JSON", b)
		}
		var s sample
		if Decode(b, &s) != nil {
			return
		}
		if again, err := Append(nil, s); err != nil || !valid || !bytes.Equal(again, b) {
			t.Fatalf("%q became %q, %v", b, again, err)
		}
	})
}
