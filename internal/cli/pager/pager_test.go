package pager

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
)

func TestFind(t *testing.T) {
	for _, none := range []string{"PAGER=", "PAGER= ", "PAGER=cat"} {
		if c := Find([]string{none}); c != nil {
			t.Errorf("%q is %v", none, c.Args)
		}
	}
	c := Find([]string{"PAGER=less -S", "LESS=", "X=y"})
	if c == nil || c.Args[len(c.Args)-1] != "less -S" || !slices.Contains(c.Env, "X=y") || !slices.Contains(c.Env, "LV=-c") ||
		slices.Contains(c.Env, "LESS=FRX") {
		t.Errorf("%+v", c)
	}
	if c = Find([]string{"PAGER=more"}); !slices.Contains(c.Env, "LESS=FRX") {
		t.Errorf("%v", c.Env)
	}
}

func through(t *testing.T, line string, show func(io.Writer) error) (string, error) {
	t.Helper()
	c := Find([]string{"PAGER=" + line, "PATH=/usr/bin:/bin"})
	var out bytes.Buffer
	c.Stdout = &out
	err := Through(c, show)
	return out.String(), err
}

func TestThrough(t *testing.T) {
	out, err := through(t, "sed s/^/paged:/", func(w io.Writer) error {
		_, err := io.WriteString(w, "one\ntwo\n")
		return err
	})
	if err != nil || out != "paged:one\npaged:two\n" {
		t.Errorf("%q, %v", out, err)
	}
	// It has seen enough, which is its user's right; what we could not show is an error.
	endless := func(w io.Writer) error {
		for {
			if _, err := io.WriteString(w, strings.Repeat("line\n", 1000)); err != nil {
				return err
			}
		}
	}
	if out, err = through(t, "head -n 1", endless); err != nil || out != "line\n" {
		t.Errorf("%q, %v", out, err)
	}
	if _, err = through(t, "exit 3", endless); err != nil {
		t.Errorf("a pager that fails has told it itself: %v", err)
	}
	broken := errors.New("broken")
	if _, err = through(t, "wc -c", func(io.Writer) error { return broken }); !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
}
