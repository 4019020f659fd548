package openai

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"
)

func readAll(r io.Reader) (events []string, err error) {
	e := NewEvents(r)
	for {
		data, err := e.Next()
		if err != nil {
			return events, err
		}
		events = append(events, string(data))
	}
}

func TestEventShapes(t *testing.T) {
	for in, want := range map[string]string{
		"data: a\n\ndata: b\n\n":                          "a|b",
		"data:a\r\n\r\ndata: b\r\n\r\n":                   "a|b",
		"data: a\r\rdata: b\r\r":                          "a|b",
		": ping\n\ndata: a\n\n: ping\n\n":                 "a",
		"event: x\nid: 1\ndata: a\ndata: b\n\n":           "a\nb",
		"data: a\n\ndata: [DONE]":                         "a|[DONE]",
		"data: a\n\ndata: [DONE]\n":                       "a|[DONE]",
		"datax: a\n\ndata\n\n":                            "",
		"data:  two blanks\n\n":                           " two blanks",
		"\n\n\n":                                          "",
		"data: {\"content\":\"gr\xc3\xbc\xc3\x9fe\"}\n\n": "{\"content\":\"grüße\"}",
	} {
		for name, r := range map[string]io.Reader{
			"at once":      strings.NewReader(in),
			"byte by byte": iotest.OneByteReader(strings.NewReader(in)),
			"halves":       iotest.HalfReader(strings.NewReader(in)),
			"data and EOF": iotest.DataErrReader(strings.NewReader(in)),
		} {
			got, err := readAll(r)
			if strings.Join(got, "|") != want || !errors.Is(err, io.EOF) {
				t.Errorf("%q %s: %q, %v", in, name, got, err)
			}
		}
	}
}

func TestCutStreamIsSaid(t *testing.T) {
	for _, in := range []string{"data: {\"a\"", "data: {\"a\":1}\n"} {
		if got, err := readAll(strings.NewReader(in)); !errors.Is(err, ErrCut) {
			t.Errorf("%q: %q, %v", in, got, err)
		}
	}
	broken := errors.New("reset")
	if _, err := readAll(io.MultiReader(strings.NewReader("data: a\n\nda"), iotest.ErrReader(broken))); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
}

func TestEndlessEventIsRefused(t *testing.T) {
	line := strings.Repeat("data: "+strings.Repeat("x", 1<<20)+"\n", 20)
	if _, err := readAll(strings.NewReader(line)); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("got %v", err)
	}
	if _, err := readAll(endless{}); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("got %v", err)
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// An event must come out when its last byte arrives: a reader that waits for one
// byte more would add the provider's pause to each event.
func TestEventIsNotHeldBack(t *testing.T) {
	for _, in := range []string{"data: a\n\n", "data: a\r\n\r\n", "data: a\r\r"} {
		r, w := io.Pipe()
		go w.Write([]byte(in))
		if data, err := NewEvents(r).Next(); string(data) != "a" || err != nil {
			t.Errorf("%q: %q, %v", in, data, err)
		}
		r.Close()
	}
}

// Property: however events are cut into reads, they come out as they went in.
func TestAnyCutGivesTheSameEvents(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.SliceOf(rapid.StringMatching(`[^\r\n]{1,40}`)).Draw(t, "events")
		var wire []byte
		for _, data := range want {
			wire = AppendEvent(wire, []byte(data))
		}
		var parts []io.Reader
		for len(wire) > 0 {
			n := rapid.IntRange(1, len(wire)).Draw(t, "cut")
			parts = append(parts, bytes.NewReader(wire[:n]))
			wire = wire[n:]
		}
		got, err := readAll(io.MultiReader(parts...))
		if !errors.Is(err, io.EOF) || strings.Join(got, "\x00") != strings.Join(want, "\x00") {
			t.Fatalf("got %q, %v, want %q", got, err, want)
		}
	})
}

func FuzzEvents(f *testing.F) {
	f.Add([]byte("data: a\r\n\r\n: x\n\ndata: [DONE]"))
	f.Fuzz(func(t *testing.T, wire []byte) {
		a, errA := readAll(bytes.NewReader(wire))
		b, errB := readAll(iotest.OneByteReader(bytes.NewReader(wire)))
		if strings.Join(a, "\x00") != strings.Join(b, "\x00") || (errA == nil) != (errB == nil) {
			t.Fatalf("cut matters: %q %v, %q %v", a, errA, b, errB)
		}
	})
}
