package terminal

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"skep.dev/skep/internal/sys"
)

func filtered(parts ...string) string {
	var out bytes.Buffer
	f := NewFilter(&out)
	for _, p := range parts {
		_, _ = f.Write([]byte(p))
	}
	return out.String()
}

func TestFilter(t *testing.T) {
	for in, want := range map[string]string{
		"plain\r\n\t":                        "plain\r\n\t",
		"\x1b[31mred\x1b[0m":                 "\x1b[31mred\x1b[0m",
		"\x1b[2J\x1b[1;1H":                   "\x1b[2J\x1b[1;1H",
		"\x1b]0;title\x07x":                  "x", // title
		"\x1b]2;title\x1b\\x":                "x",
		"\x1b]52;c;aGk=\x07x":                "x",                                      // clipboard
		"\x1b]8;;https://x\x07t\x1b]8;;\x07": "\x1b]8;;https://x\x1b\\t\x1b]8;;\x1b\\", // link
		"\x1b]11;?\x07x":                     "x",                                      // asks for a colour
		"\x1b]4;1;rgb:0/0/0\x07":             "\x1b]4;1;rgb:0/0/0\x1b\\",
		"\x1b[6nx":                           "x", // reports
		"\x1b[cx\x1b[>cy\x1b[=cz":            "xyz",
		"\x1b[?1$px":                         "x",
		"\x1b[21tx\x1b[8;1;2ty":              "x\x1b[8;1;2ty",
		"\x1b[22tx":                          "x",
		"\x1bP$qm\x1b\\x":                    "x", // DCS
		"\x1bZx\x05y":                        "xy",
		"\x1b_apc\x1b\\x\x1b^pm\x1b\\y":      "xy",
		"\u009b6nx":                          "x", // C1 in UTF-8
		"\u009d0;t\u009cx":                   "x",
		"\u009b31mx":                         "\x1b[31mx",
		"é\u00a0ü":                           "é\u00a0ü",
		"\x1b[?25h\x1b(B\x1b7\x1b8\x1b=":     "\x1b[?25h\x1b(B\x1b7\x1b8\x1b=",
		"\x1b]0;a\x18b":                      "b",
		"\x1b[3\x1b[6nx":                     "x",
		"\x1b]52;c;" + strings.Repeat("A", 3*maxSequence) + "\x07x": "x",
		"\x1b[?u\x1b[>qx": "x",
	} {
		if got := filtered(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
		if got := filtered(strings.Split(in, "")...); got != want {
			t.Errorf("%q, byte by byte: got %q, want %q", in, got, want)
		}
	}
}

// FuzzFilter: however it is cut, the same comes out, and none of what is dropped.
func FuzzFilter(f *testing.F) {
	for _, s := range []string{"\x1b]0;t\x07", "\x1b[6n", "\u009d52;c;x\u009c", "\x1b\x1b[c", "\xc2", "\x1b[;;\x1b]"} {
		f.Add(s, 1)
	}
	f.Fuzz(func(t *testing.T, s string, cut int) {
		whole := filtered(s)
		if cut = max(0, min(cut, len(s))); filtered(s[:cut], s[cut:]) != whole {
			t.Fatalf("%q cut at %d differs", s, cut)
		}
		if filtered(whole) != whole {
			t.Fatalf("%q: %q is not clean", s, whole)
		}
		for _, bad := range []string{"\x1b]0;", "\x1b]2;", "\x1b]52;", "\x1b[6n", "\x1b[c", "\x05"} {
			if strings.Contains(whole, bad) {
				t.Fatalf("%q lets %q through", s, bad)
			}
		}
	})
}

func TestDetachKeys(t *testing.T) {
	for _, c := range []struct {
		parts  []string
		rest   string
		detach bool
	}{
		{[]string{"abc"}, "abc", false},
		{[]string{"ab\x10\x11c"}, "", true},
		{[]string{"a\x10", "\x11"}, "a", true},
		{[]string{"\x10x"}, "\x10x", false},
		{[]string{"\x10\x10\x11"}, "", true},
		{[]string{"\x11\x10"}, "\x11", false}, // held back
	} {
		var k detachKeys
		var rest []byte
		var detach bool
		for _, p := range c.parts {
			r, d := k.look([]byte(p))
			if d {
				detach = true
				break
			}
			rest = append(rest, r...)
		}
		if string(rest) != c.rest || detach != c.detach {
			t.Errorf("%q: got %q, %v", c.parts, rest, detach)
		}
	}
}

// TestSession speaks the warden's side of the frames.
func TestSession(t *testing.T) {
	ours, warden, err := sys.StreamPair()
	if err != nil {
		t.Fatal(err)
	}
	in, typed, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	var out, errs bytes.Buffer
	done := make(chan error, 1)
	go func() {
		_, err := Session(context.Background(), ours, Console{In: in, Out: &out, Err: &errs})
		done <- err
	}()
	_, _ = io.WriteString(typed, "hi")
	_ = typed.Close()
	got := make([]byte, 5+2+5)
	if _, err := io.ReadFull(warden, got); err != nil {
		t.Fatal(err)
	}
	if want := "\x00\x02\x00\x00\x00hi\x04\x00\x00\x00\x00"; string(got) != want {
		t.Errorf("sent %q, want %q", got, want)
	}
	_, _ = io.WriteString(warden, "\x01\x03\x00\x00\x00out\x02\x03\x00\x00\x00err")
	_ = warden.Close()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("the session goes on")
	}
	if out.String() != "out" || errs.String() != "err" {
		t.Errorf("got %q and %q", out.String(), errs.String())
	}
}

// TestUnreadInputIsNoFault: an agent that ends before its input was read ends like any other.
func TestUnreadInputIsNoFault(t *testing.T) {
	ours, warden, err := sys.StreamPair()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ours.Close() }()
	if err := (&frames{w: ours}).send(frameEOF, nil); err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(warden, "\x01\x03\x00\x00\x00out")
	_ = warden.Close()
	var out bytes.Buffer
	if err := receive(ours, &out, io.Discard, nil); err != nil || out.String() != "out" {
		t.Errorf("got %q, %v", out.String(), err)
	}
}

func TestHostileFramesEndTheSession(t *testing.T) {
	for name, in := range map[string]string{
		"too long":     "\x01\xff\xff\xff\x7f",
		"unknown type": "\x07\x00\x00\x00\x00",
		"torn":         "\x01\x05\x00\x00\x00ab",
	} {
		err := receive(strings.NewReader(in), io.Discard, io.Discard, nil)
		if err == nil || errors.Is(err, io.EOF) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
