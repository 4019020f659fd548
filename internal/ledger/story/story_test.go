package story

import (
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"skep.dev/skep/internal/ledger/entry"
	"skep.dev/skep/internal/ledger/jcs"
	"skep.dev/skep/internal/ledger/kind"
)

func entryOf(t testing.TB, b kind.Body) *entry.Entry {
	t.Helper()
	raw, err := jcs.Append(nil, b)
	if err != nil {
		t.Fatal(err)
	}
	return &entry.Entry{Seq: 12, Time: time.Unix(1796000000, 5e8).UTC(), Cell: "c1", Kind: b.Kind(), Body: raw}
}

func TestLines(t *testing.T) {
	var teller Teller
	for _, c := range []struct {
		body kind.Body
		want string
	}{
		{kind.FlowDenied{Destination: "example.org", Port: 443, Transport: "tcp", Decision: "block", Reason: "not listed", AllowWith: "net: [{name: example.org}]", Count: 3},
			"2026-11-30 00:53:20.500    12  deny  flow.denied         example.org:443/tcp, 3 times: not listed; allow with: net: [{name: example.org}]"},
		{kind.CellStopped{Cause: "budget", Exit: 124, Limit: "wall: 20m", Peak: "20m", Ms: 1200000},
			"2026-11-30 00:53:20.500    12        cell.stopped        budget, exit 124 after 20m0s, limit wall: 20m, peak 20m"},
		{kind.MergeApplied{Who: "ann", Hash: "0123456789abcdef", Root: "/src", Paths: []kind.Path{{Path: "a.go", Op: "change"}}},
			"2026-11-30 00:53:20.500    12  allow merge.applied       ann merged difference 0123456789ab in /src: change a.go"},
	} {
		got := teller.Line(entryOf(t, c.body))
		if got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
	if got := (&Teller{Colour: true, Cell: true}).Line(entryOf(t, kind.FlowDenied{})); !strings.Contains(got, "\x1b[31m") || !strings.Contains(got, " c1 ") {
		t.Errorf("%q", got)
	}
	bad := entryOf(t, kind.Note{})
	bad.Body = []byte(`{"by":1}`)
	if got := teller.Line(bad); !strings.Contains(got, "cannot be read") {
		t.Errorf("%q", got)
	}
}

// hostile sets every text of a body to bytes that would take over a terminal.
func hostile(v reflect.Value) {
	const text = "x\x1b[2J\x1b]52;c;eA==\a\r\n\u202e\u2066\u200b\u009b"
	switch v.Kind() {
	case reflect.String:
		if v.Type() == reflect.TypeFor[kind.Bytes]() {
			v.SetString(text + "\xff\x00")
		} else {
			v.SetString(text)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 12, 12))
		for i := range 12 {
			hostile(v.Index(i))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			hostile(v.Field(i))
		}
	case reflect.Bool:
		v.SetBool(true)
	default:
		v.Set(reflect.ValueOf(77).Convert(v.Type()))
	}
}

// Every kind, with every text hostile: one line, nothing but printable
// characters, and a sentence of its own.
func TestNothingFromACellReachesTheTerminal(t *testing.T) {
	var teller Teller
	for _, k := range kind.All() {
		for _, in := range []bool{false, true} {
			b := kind.New(k)
			hostile(reflect.ValueOf(b).Elem())
			if f, ok := b.(*kind.FlowIntent); ok && in {
				f.Direction = "in"
			}
			line := teller.Line(entryOf(t, b))
			if !utf8.ValidString(line) || strings.ContainsFunc(line, func(r rune) bool {
				return unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Bidi_Control)
			}) {
				t.Errorf("%s: %q", k, line)
			}
			if strings.Contains(line, "no sentence") || strings.Contains(line, "cannot be read") {
				t.Errorf("%s: %s", k, line)
			}
		}
	}
}
