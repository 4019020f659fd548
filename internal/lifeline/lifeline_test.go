package lifeline

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"skep.dev/skep/internal/sys"
)

func ends(t *testing.T) (*Asker, *os.File, chan struct{}) {
	t.Helper()
	ours, theirs, err := sys.SeqpacketPair()
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	a := NewAsker(ours)
	go func() {
		a.Run()
		close(ended)
	}()
	t.Cleanup(func() { a.Close(); _ = theirs.Close() })
	return a, theirs, ended
}

func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func TestOrdersAreAnsweredInTurn(t *testing.T) {
	a, box, _ := ends(t)
	passed, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer passed.Close()
	go func() {
		for _, want := range []Order{Move, Keep} {
			o, f, err := Next(box)
			if err != nil || o != want || (f != nil) != (o == Move) {
				t.Errorf("%c, %v, %v", o, f, err)
			}
			if f != nil {
				_ = f.Close()
			}
			var why error
			if o == Keep {
				why = errors.New("not\nnow")
			}
			if err := Answer(box, why); err != nil {
				t.Error(err)
			}
		}
	}()
	if err := a.Ask(soon(t), Move, passed); err != nil {
		t.Error(err)
	}
	if err := a.Ask(soon(t), Keep); err == nil || !strings.Contains(err.Error(), `"not\nnow"`) {
		t.Error(err)
	}
}

// An order that was given up is still answered, and the next waits for that.
func TestLateAnswer(t *testing.T) {
	a, box, _ := ends(t)
	short, cancel := context.WithCancel(context.Background())
	late, err := a.Begin(short, Part)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := a.Ask(short, Keep); !errors.Is(err, context.Canceled) {
		t.Errorf("a second order went beside the first: %v", err)
	}
	if err := Answer(box, nil); err != nil {
		t.Fatal(err)
	}
	if err := <-late; err != nil {
		t.Error(err)
	}
}

// What the box answered before we closed counts, however late it is read.
func TestAnswerBeforeTheClose(t *testing.T) {
	ours, box, err := sys.SeqpacketPair()
	if err != nil {
		t.Fatal(err)
	}
	defer box.Close()
	a := NewAsker(ours)
	answer, err := a.Begin(soon(t), Part)
	if err != nil {
		t.Fatal(err)
	}
	if err := Answer(box, nil); err != nil {
		t.Fatal(err)
	}
	a.Close()
	a.Run()
	if err := <-answer; err != nil {
		t.Error(err)
	}
	if _, err := a.Begin(soon(t), Keep); !errors.Is(err, ErrGone) {
		t.Errorf("an order after the close: %v", err)
	}
}

// TestNonsenseEndsIt is the attack: a box that says what is no answer, answers what was
// not asked, or sends a descriptor.
func TestNonsenseEndsIt(t *testing.T) {
	null, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	for name, say := range map[string]func(box *os.File) error{
		"unasked":      func(box *os.File) error { return Answer(box, nil) },
		"twice":        func(box *os.File) error { return errors.Join(Answer(box, nil), Answer(box, nil)) },
		"no answer":    func(box *os.File) error { return sys.SendFDs(box, []byte("x")) },
		"more":         func(box *os.File) error { return sys.SendFDs(box, []byte("yy")) },
		"long":         func(box *os.File) error { return sys.SendFDs(box, make([]byte, 1<<10)) },
		"a descriptor": func(box *os.File) error { return sys.SendFDs(box, []byte("y"), null) },
		"the end":      func(box *os.File) error { return box.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			a, box, ended := ends(t)
			var answer <-chan error
			if name != "unasked" {
				if answer, err = a.Begin(soon(t), Part); err != nil {
					t.Fatal(err)
				}
			}
			if err := say(box); err != nil {
				t.Fatal(err)
			}
			select {
			case <-ended:
			case <-soon(t).Done():
				t.Fatal("the conversation goes on")
			}
			if err := a.Ask(soon(t), Keep); err == nil {
				t.Error("an order was given after the end")
			}
			if answer != nil && name != "twice" {
				if err := <-answer; err == nil {
					t.Error("it was taken for an answer")
				}
			}
		})
	}
}

func FuzzNext(f *testing.F) {
	f.Add([]byte("l"), true)
	f.Add([]byte("kk"), false)
	f.Fuzz(func(t *testing.T, m []byte, with bool) {
		if len(m) == 0 || len(m) > 1<<10 {
			return
		}
		a, b, err := sys.SeqpacketPair()
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close()
		defer b.Close()
		var files []*os.File
		if with {
			files = append(files, a)
		}
		if err := sys.SendFDs(a, m, files...); err != nil {
			t.Fatal(err)
		}
		o, file, err := Next(b)
		if err == nil && (len(m) != 1 || (file != nil) != (o.descriptors() == 1)) {
			t.Errorf("%q was taken for %c", m, o)
		}
		if file != nil {
			_ = file.Close()
		}
	})
}
