package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"connectrpc.com/connect"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/internal/profile"
)

// app is an invocation whose output is kept, with places of its own.
func app(t *testing.T) (a *App, out func() string, errs *bytes.Buffer) {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	file, err := os.Create(filepath.Join(dir, "out"))
	if err != nil {
		t.Fatal(err)
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close(); _ = null.Close() })
	env := map[string]string{"SKEP_STATE": filepath.Join(dir, "state"), "SKEP_RUN": filepath.Join(dir, "run"), "XDG_STATE_HOME": filepath.Join(dir, "own")}
	errs = &bytes.Buffer{}
	a = &App{In: null, Out: file, Err: errs, Getenv: func(name string) string { return env[name] }}
	return a, func() string {
		raw, err := os.ReadFile(file.Name())
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	}, errs
}

func TestUsage(t *testing.T) {
	for line, want := range map[string]int{
		"version":                           statusDone,
		"--help":                            statusDone,
		"nonsense":                          statusUsage,
		"run":                               statusUsage,
		"run --nonsense -- true":            statusUsage,
		"logs":                              statusUsage,
		"logs a b":                          statusUsage,
		"merge onlycell":                    statusUsage,
		"merge a b --undo c":                statusUsage,
		"stop x --grace 0s":                 statusUsage,
		"ledger nonsense":                   statusUsage,
		"ledger verify --since x":           statusUsage,
		"model script --listen 0.0.0.0:1 f": statusUsage,
		"check /nonexistent/file.yaml":      statusRefused,
	} {
		a, _, errs := app(t)
		if got := a.Run(context.Background(), strings.Fields(line)); got != want {
			t.Errorf("skep %s: status %d, want %d: %s", line, got, want, errs)
		}
		if want != statusDone && !strings.HasPrefix(errs.String(), "skep: ") {
			t.Errorf("skep %s said %q", line, errs)
		}
	}
}

func TestVersionAsJSON(t *testing.T) {
	a, out, _ := app(t)
	if a.Run(context.Background(), []string{"version", "--json"}) != 0 || !strings.Contains(out(), `"api":1`) || strings.Count(out(), "\n") != 1 {
		t.Errorf("got %q", out())
	}
}

func TestStatuses(t *testing.T) {
	for _, c := range []struct {
		err  error
		want int
	}{
		{connect.NewError(connect.CodeNotFound, errors.New("x")), statusNoCell},
		{fmt.Errorf("wrapped: %w", connect.NewError(connect.CodeNotFound, errors.New("x"))), statusNoCell},
		{connect.NewError(connect.CodeFailedPrecondition, errors.New("x")), statusRefused},
		{errors.New("x"), statusRefused},
	} {
		if got := statusOf(c.err); got != c.want {
			t.Errorf("%v: %d, want %d", c.err, got, c.want)
		}
	}
	if got := text(connect.NewError(connect.CodeNotFound, errors.New("no such cell"))); got != "no such cell" {
		t.Errorf("a person reads %q", got)
	}
}

// The faults of a profile are shown with their lines and a caret, for check and run alike.
func TestFaultsAreShownInTheirLines(t *testing.T) {
	for _, line := range []string{"check %s", "run --profile %s -- true"} {
		a, _, errs := app(t)
		file := filepath.Join(t.TempDir(), "bad.yaml")
		if err := os.WriteFile(file, []byte("version: v1\nbudget:\n  memory: 4 cows\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if a.Run(t.Context(), strings.Fields(fmt.Sprintf(line, file))) == statusDone {
			t.Errorf("%s is done", line)
		}
		if got := errs.String(); !strings.Contains(got, "\n      memory: 4 cows\n              ^^^^^^\nskep: 1 fault; nothing was run\n") {
			t.Errorf("%s:\n%s", line, got)
		}
	}
}

func TestResultIsReplacedWhole(t *testing.T) {
	file := filepath.Join(t.TempDir(), "result.json")
	if err := os.WriteFile(file, []byte("old and longer than the new one, old and longer"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := writeResult(file, &skepv1.Cell{Id: "i", ExitCode: 124, Cause: "budget: wall", Limit: 5, Peak: 6}); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"exit_code":124`, `"cause":"budget: wall"`, `"limit":"5"`, `"peak":"6"`} {
		if !strings.Contains(string(raw), want) {
			t.Errorf("%s is not in %s", want, raw)
		}
	}
	if entries, _ := os.ReadDir(filepath.Dir(file)); len(entries) != 1 {
		t.Errorf("%d files are left", len(entries))
	}
}

func TestChoose(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("own.yaml", "version: v1\npaths: [{path: ., rights: rw}]\n")
	c, err := choose("", dir)
	if err != nil || !c.shipped || c.name != profile.Default || c.found != "" {
		t.Errorf("without a profile: %+v, %v", c, err)
	}
	whole := c.profile.Digest()
	c, err = choose(filepath.Join(dir, "own.yaml"), "/")
	if err != nil || c.shipped || c.dir != dir {
		t.Errorf("a named one: %+v, %v", c, err)
	}
	write(foundName, "version: v1\nbudget: {pids: 16}\n")
	c, err = choose("", dir)
	if err != nil || c.found == "" || c.profile.Digest() == whole {
		t.Errorf("a found one: %+v, %v", c, err)
	}
	write(foundName, "version: v1\nnet: [{name: exfil.example}]\n")
	if c, err = choose("", dir); err == nil {
		t.Errorf("a found profile widened the rights: %+v", c)
	}
	if c, err = choose(profile.Default, dir); err != nil || c.found != "" {
		t.Errorf("a project file was applied to a named profile: %+v, %v", c, err)
	}
}

func TestNamedProfileIsConfirmedOnceForItsDigest(t *testing.T) {
	a, _, _ := app(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "p.yaml")
	write := func(text string) *chosen {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := choose(file, dir)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	narrow := write("version: v1\npaths: [{path: ., rights: ro}]\n")
	if _, err := a.confirm(narrow, false); err == nil {
		t.Error("without a terminal and --yes it was confirmed")
	}
	for _, want := range []string{"flag", "before"} {
		if how, err := a.confirm(narrow, true); err != nil || how != want {
			t.Errorf("got %q, %v, want %q", how, err, want)
		}
	}
	if _, err := a.confirm(write("version: v1\npaths: [{path: ., rights: rw}]\n"), false); err == nil {
		t.Error("wider rights passed by the old confirmation")
	}
}

// TestConfirmationIsOfWhereTheGrantsLead: a granted path that becomes a link leads to
// what nobody has confirmed, in the profile's own directory too.
func TestConfirmationIsOfWhereTheGrantsLead(t *testing.T) {
	for _, kind := range []string{"file", "directory"} {
		a, _, complaint := app(t)
		dir := t.TempDir()
		granted, other := filepath.Join(dir, "granted"), filepath.Join(dir, "other")
		for _, at := range []string{granted, other} {
			err := os.Mkdir(at, 0o700)
			if kind == "file" {
				err = errors.Join(os.Remove(at), os.WriteFile(at, nil, 0o600))
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		file := filepath.Join(dir, "p.yaml")
		if err := os.WriteFile(file, []byte("version: v1\npaths: [{path: granted, rights: rw}]\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := choose(file, dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"flag", "before"} {
			if how, err := a.confirm(c, want == "flag"); how != want || err != nil {
				t.Fatalf("%s: %q, %v, want %q", kind, how, err, want)
			}
		}
		if err := errors.Join(os.Remove(granted), os.Symlink(other, granted)); err != nil {
			t.Fatal(err)
		}
		if how, err := a.confirm(c, false); err == nil || !strings.Contains(complaint.String(), other) {
			t.Errorf("%s: a link to another one passed: %q\n%s", kind, how, complaint)
		}
		for _, want := range []string{"flag", "before"} {
			if how, err := a.confirm(c, want == "flag"); how != want || err != nil {
				t.Errorf("%s: %q, %v, want %q", kind, how, err, want)
			}
		}
	}
}

func TestPassedEnvironment(t *testing.T) {
	a := &App{Env: []string{"LANG=C", "LANGUAGE=x", "SECRET=y", "EMPTY=", "TERM=a=b"}}
	got := a.passedEnv(&profile.Profile{Env: profile.Env{Pass: []string{"EMPTY", "LANG", "TERM", "TZ"}}})
	if len(got) != 3 || got["LANG"] != "C" || got["TERM"] != "a=b" {
		t.Errorf("got %v", got)
	}
	if _, there := got["EMPTY"]; !there {
		t.Error("an empty variable is not passed")
	}
}
