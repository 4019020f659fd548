package strict

import (
	"math"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// What takes the YAML library a minute is refused before it starts.
func TestHostileSizesAreRefused(t *testing.T) {
	var keys strings.Builder
	for i := range 20_000 {
		keys.WriteString("a" + strconv.Itoa(i) + ": b\n")
	}
	for name, src := range map[string]string{
		"keys": keys.String(), "dashes": strings.Repeat("- ", 100_000), "lines of dashes": strings.Repeat("- - - -\n", 4000),
		"braces": strings.Repeat("{a: ", 50_000), "brackets": strings.Repeat("[\n", 50_000),
		"flow keys": "{" + strings.Repeat("a: b,\n ", 20_000) + "}", "bytes": strings.Repeat("#", MaxBytes+1),
		"one line": "a: " + strings.Repeat("b", 5000), "anchors": strings.Repeat("&a ", 1300),
	} {
		n, r := Read("f.yaml", []byte(src))
		if n != nil || r.Len() == 0 {
			t.Errorf("%s: read", name)
		}
	}
	if _, r := Read("f.yaml", []byte("net:\n"+strings.Repeat("  - {name: a.example.org, ports: [443, 8000-8010], id: r}\n", 1000))); r.Len() > 0 {
		t.Errorf("1,000 rules are refused: %v", r.Faults())
	}
}

func TestTreeHasPlaces(t *testing.T) {
	n, r := Read("f.yaml", []byte("# c\na: 1\nlist:\n  - x\n  - {k: 'v w', n: 2.50}\nt: true\né: \"q\"\nz: |\n  text\n"))
	if r.Len() > 0 {
		t.Fatal(r.Faults())
	}
	var got strings.Builder
	var walk func(string, *Node)
	walk = func(name string, n *Node) {
		got.WriteString(name + "@" + strconv.Itoa(n.Line) + ":" + strconv.Itoa(n.Column) + " " + strconv.Itoa(int(n.Kind)) + " " + strconv.Quote(n.Text) + "\n")
		for _, item := range n.Items {
			walk("-", item)
		}
		for _, f := range n.Fields {
			walk(f.Key, f.Value)
		}
	}
	walk("root", n)
	want := `root@2:1 6 ""
a@2:4 2 "1"
list@4:3 5 ""
-@4:5 4 "x"
-@5:6 6 ""
k@5:9 4 "v w"
n@5:19 3 "2.50"
t@6:4 1 "true"
é@7:4 4 "q"
z@8:4 4 "text\n"
`
	if got.String() != want {
		t.Errorf("got\n%s", got.String())
	}
}

// Amounts print to what they are read from (R10).
func TestAmountsRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := rapid.Int64Range(1, math.MaxInt64).Draw(t, "v")
		digits := rapid.IntRange(0, 6).Draw(t, "digits")
		for text, read := range map[string]func(string) (int64, bool){
			FormatSize(v):          func(s string) (int64, bool) { return measure(s, sizeUnits()) },
			FormatTime(v):          func(s string) (int64, bool) { return measure(s, timeUnits()) },
			FormatFixed(v, digits): func(s string) (int64, bool) { return decimal(s, digits) },
		} {
			if back, ok := read(text); !ok || back != v {
				t.Fatalf("%d prints as %s, read as %d, %v", v, text, back, ok)
			}
		}
	})
}

func TestMeasure(t *testing.T) {
	for s, want := range map[string]int64{"30m": 1_800_000, "1h30m": 5_400_000, "1d": 86_400_000, "500ms": 500, "1_000s": 1_000_000, "1h0m1s": 3_601_000} {
		if got, ok := measure(s, timeUnits()); !ok || got != want {
			t.Errorf("%s: %d, %v", s, got, ok)
		}
	}
	for _, s := range []string{"m", "30", "30 m", "30m30m", "1m1h", "-1m", "+1m", "1.5h", "1e3s", "9999999999999d", "106751991168d", "1__0s", "01s", "1µs", "1M"} {
		if got, ok := measure(s, timeUnits()); ok {
			t.Errorf("%s is read as %d", s, got)
		}
	}
	if v, ok := measure("8388607TiB1023GiB1023MiB1023KiB1023B", sizeUnits()); !ok || v != math.MaxInt64 {
		t.Error(v, ok)
	}
	if v, ok := measure("8388607TiB1024GiB", sizeUnits()); ok {
		t.Error("overflow is read as", v)
	}
}

func TestPrintable(t *testing.T) {
	for in, want := range map[string]string{
		"plain é ü 漢": "plain é ü 漢", "a\x1b[2J": `a\x1b[2J`, "\u202eabc": `\u202eabc`, "a\xffb": `a\xffb`,
		"\u200b": `\u200b`, "\u0085": `\u0085`, "tab\t": `tab\t`, "\ufffd": `\ufffd`, "\U000e0041": `\U000e0041`,
	} {
		if got := Printable(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func TestNearest(t *testing.T) {
	keys := []string{"paths", "net", "secrets", "env"}
	for in, want := range map[string]string{"pathes": "paths", "path": "paths", "Paths": "paths", "nets": "net", "xyz": "", "secret": "secrets", "e": "", strings.Repeat("a", 100): ""} {
		if got := nearest(in, keys); got != want {
			t.Errorf("%s: %q, want %q", in, got, want)
		}
	}
}

func FuzzRead(f *testing.F) {
	for _, s := range []string{"a: 1", "- [a, {b: c}]", "a: &x y\nb: *x", "? a\n: b", "--- a\n--- b", "a: !!t 'x'", "'", "\t", "{a: b, a: c}", "a: |\n x"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		n, r := Read("f", src)
		for _, fault := range r.Faults() {
			_ = fault.Render()
		}
		if n == nil && r.Len() == 0 && meaning(src) {
			t.Errorf("%q is read as nothing", src)
		}
	})
}

// meaning tells whether anything stands outside of comments and document marks.
func meaning(src []byte) bool {
	for line := range strings.Lines(string(src)) {
		line = strings.TrimSpace(line)
		if line != "" && line[0] != '#' && !strings.HasPrefix(line, "---") && !strings.HasPrefix(line, "...") {
			return true
		}
	}
	return false
}

// What the library reads over is a fault, not nothing.
func TestNothingIsReadOver(t *testing.T) {
	for _, src := range []string{"!", "a: 1\n...\nb: 2", "%YAML 1.1\n---\na: 1", "--- x\n--- y", "a: !\n", "!!\n# x", "a: b\n!\n", "a: b\n!x\n", "- !\n- x"} {
		if n, r := Read("f", []byte(src)); r.Len() == 0 {
			t.Errorf("%q is read as %+v", src, n)
		}
	}
}

func TestPlainNumbers(t *testing.T) {
	for s, kind := range map[string]string{
		"0": "int", "+1_000": "int", "-7_": "int", "1.": "float", "-1_0.5_0": "float", "+0.0": "float",
		"": "", "-": "", "_1": "", ".5": "", "1.2.3": "", "1e3": "", "0x10": "", "+-1": "", "1 ": "", "1\n": "", "１": "",
	} {
		if isNumber(s, false) != (kind == "int") || isNumber(s, true) != (kind == "float") {
			t.Errorf("%q: int %v, float %v", s, isNumber(s, false), isNumber(s, true))
		}
	}
}
