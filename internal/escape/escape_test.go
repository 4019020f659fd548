package escape

import (
	"bytes"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func TestLine(t *testing.T) {
	for in, want := range map[string]string{
		"":                                   "",
		"plain text, ünïcode 漢字 🐝":           "plain text, ünïcode 漢字 🐝",
		"a\nb\tc\r":                          `a\nb\tc\r`,
		"\x1b[2J\x1b]52;c;aGk=\a":            `\x1b[2J\x1b]52;c;aGk=\x07`,
		"\u009b31m":                          `\u{9b}31m`, // a C1 control is a CSI too
		"user\u202etxt.exe":                  `user\u{202e}txt.exe`,
		"\u2066a\u2069\u200e\u200f\u061c":    `\u{2066}a\u{2069}\u{200e}\u{200f}\u{61c}`,
		"a\u200bb\ufeff\u00ad":               `a\u{200b}b\u{feff}\u{ad}`,
		"\u2028\u2029\u00a0":                 `\u{2028}\u{2029}\u{a0}`,
		"\U000e0041\ufe0f\u3164\u115f\u2800": `\u{e0041}\u{fe0f}\u{3164}\u{115f}\u{2800}`,
		"\xff\xc3(":                          `\xff\xc3(`,
		"\xed\xa0\x80":                       `\xed\xa0\x80`, // a surrogate is no UTF-8
		"\x7f\x00":                           `\x7f\x00`,
		`\x1b`:                               `\\x1b`,
		"\ufffd":                             "\ufffd", // the character itself, not a wrong byte
		"\ue000":                             `\u{e000}`,
	} {
		if got := Line(in); got != want {
			t.Errorf("Line(%q) = %s, want %s", in, got, want)
		}
	}
	if got := Text("a\n\tb\r\n\x1b"); got != "a\n\tb\\r\n\\x1b" {
		t.Errorf("Text: %q", got)
	}
}

// harmless says what must hold of everything that comes out.
func harmless(s string) bool {
	if !utf8.ValidString(s) {
		return false
	}
	for _, r := range s {
		if unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Bidi_Control, unicode.Co, unicode.Cs) {
			return false
		}
	}
	return true
}

func TestOneToOneAndHarmless(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := string(rapid.SliceOf(rapid.Byte()).Draw(t, "a"))
		b := rapid.String().Draw(t, "b")
		for _, s := range []string{a, b, a + b} {
			if out := Line(s); !harmless(out) {
				t.Fatalf("%q became %q", s, out)
			}
		}
		if a != b && Line(a) == Line(b) {
			t.Fatalf("%q and %q look the same: %s", a, b, Line(a))
		}
	})
}

// However the bytes are cut into writes, the same comes out.
func TestWriter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.String().Draw(t, "s") + string(rapid.SliceOf(rapid.Byte()).Draw(t, "bytes"))
		var out bytes.Buffer
		w := NewWriter(&out)
		for rest := s; rest != ""; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "n")
			if m, err := w.Write([]byte(rest[:n])); m != n || err != nil {
				t.Fatal(m, err)
			}
			rest = rest[n:]
		}
		if err := w.Flush(); err != nil || out.String() != Text(s) {
			t.Fatalf("%q became %q, want %q", s, out.String(), Text(s))
		}
	})
}

func FuzzLine(f *testing.F) {
	f.Add("\x1b]0;title\a\u202e\xff")
	f.Fuzz(func(t *testing.T, s string) {
		if out := Line(s); !harmless(out) || strings.Contains(out, "\n") {
			t.Fatalf("%q became %q", s, out)
		}
	})
}

// A sentence of ours has its names quoted already, and is safe all the same.
func TestSentence(t *testing.T) {
	for given, want := range map[string]string{
		`execute "./a\tb": no such file`: `execute "./a\tb": no such file`,
		"raw \x1b[2J\n and \u202e":       `raw \x1b[2J\n and \u{202e}`,
		`two \\ of them`:                 `two \\ of them`,
		"":                               "",
	} {
		if got := Sentence(given); got != want {
			t.Errorf("%q: %s, want %s", given, got, want)
		}
	}
}
