package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"skep.dev/skep/internal/place"
)

// An error is a sentence for a person, one object for a program, with the same status.
func TestErrorsAsJSON(t *testing.T) {
	broke := fmt.Errorf("read: %w", connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("protocol error: incomplete envelope: %w", io.ErrUnexpectedEOF)))
	for name, c := range map[string]struct {
		err  error
		want said
		text string
	}{
		"usage":   {usage("no"), said{Code: "usage", Message: "no", Exit: 2}, "skep: no\n"},
		"plain":   {errors.New("no"), said{Code: "failed", Message: "no", Exit: 1}, "skep: no\n"},
		"of run":  {&statusError{125, errors.New("no")}, said{Code: "failed", Message: "no", Exit: 125}, "skep: no\n"},
		"no cell": {connect.NewError(connect.CodeNotFound, errors.New("no")), said{Code: "not_found", Message: "no", Exit: 3}, "skep: no\n"},
		"to mend": {&fixable{what: "no", fix: "do"}, said{Code: "failed", Message: "no", Fix: "do", Exit: 1}, "skep: no; do\n"},
		"silent":  {&statusError{code: 7}, said{Exit: 7}, ""},
		"broke": {broke, said{
			Code: "failed", Message: "skepd ended before it had answered", Exit: 1,
			Fix: "run the command again: it starts another (`skep ps --all` shows what became of cells)",
		}, "skep: skepd ended before it had answered; run the command again: it starts another (`skep ps --all` shows what became of cells)\n"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, asJSON := range []bool{false, true} {
				var errs bytes.Buffer
				a := &App{Err: &errs, json: asJSON}
				if got := a.told(c.err, nil); got != c.want.Exit {
					t.Errorf("status %d", got)
				}
				if !asJSON && errs.String() != c.text {
					t.Errorf("%q", errs.String())
				}
				if !asJSON || c.text == "" {
					continue
				}
				var got struct{ Error said }
				if err := json.Unmarshal(errs.Bytes(), &got); err != nil || strings.Count(errs.String(), "\n") != 1 {
					t.Fatalf("%v: %s", err, errs.String())
				}
				if g := got.Error; g.Code != c.want.Code || g.Message != c.want.Message || g.Fix != c.want.Fix || g.Exit != c.want.Exit {
					t.Errorf("%+v, want %+v", g, c.want)
				}
			}
		})
	}
}

// A skepd that is stopped accepts, by the kernel's word, and says nothing: that is told
// within a bound, with its process.
func TestSilentDaemonIsNamed(t *testing.T) {
	a, _, errs := app(t)
	a.patience = 50 * time.Millisecond
	p, err := a.places()
	if err == nil {
		err = os.MkdirAll(p.Run, 0o700)
	}
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(p.Run, "api.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	begin := time.Now()
	if got := a.Run(t.Context(), []string{"ps"}); got != statusRefused || time.Since(begin) > 5*time.Second {
		t.Errorf("status %d after %s", got, time.Since(begin))
	}
	want := fmt.Sprintf("skepd (process %d) did not answer on %s within 50ms; `kill -CONT %[1]d` wakes it", os.Getpid(), filepath.Join(p.Run, "api.sock"))
	if !strings.Contains(errs.String(), want) {
		t.Errorf("%s does not say %s", errs, want)
	}
}

func TestStateOfAnotherIsNoticed(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(dir, "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	for theirs, same := range map[string]bool{"": true, dir: true, link: true, "/nonexistent": false, os.TempDir(): false} {
		if err := sameState(place.Places{State: dir, Run: "/r"}, theirs); (err == nil) != same {
			t.Errorf("%q: %v", theirs, err)
		} else if !same && !strings.Contains(err.Error(), "--state "+theirs) {
			t.Errorf("%v", err)
		}
	}
}
