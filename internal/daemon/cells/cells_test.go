package cells

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func id(c string) string { return strings.Repeat(c, Length) }

func store(t *testing.T, names ...string) (*Store, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "cells")
	s, _, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	for i, n := range names {
		letter, name, _ := strings.Cut(n, ":")
		add(t, s, Record{ID: id(letter), Name: name, State: Running, Created: time.Unix(int64(i), 0)})
	}
	return s, dir
}

// add makes a record and waits until it is durable.
func add(t *testing.T, s *Store, r Record) {
	t.Helper()
	keep, err := s.Add(r)
	if err == nil {
		err = keep()
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestFind(t *testing.T) {
	s, _ := store(t, "a:first", "b:second", "c:")
	if _, err := s.Change(id("a"), func(r *Record) { r.State = Merged }); err != nil {
		t.Fatal(err)
	}
	twin := "aaaab" + strings.Repeat("z", Length-5)
	add(t, s, Record{ID: twin, Name: "first", State: Running, Created: time.Unix(2, 5)})
	for ref, c := range map[string]struct {
		want string
		err  error
	}{
		id("b"):   {id("b"), nil},
		"second":  {id("b"), nil},
		"first":   {twin, nil}, // the newest of that name
		"last":    {twin, nil},
		"cccc":    {id("c"), nil},
		"aaaab":   {twin, nil},
		"aaaa":    {"", ErrAmbiguous},
		"ccc":     {"", ErrNone},
		"":        {"", ErrNone},
		"nothing": {"", ErrNone},
		"../etc":  {"", ErrNone},
	} {
		r, err := s.Find(ref)
		if r.ID != c.want || !errors.Is(err, c.err) {
			t.Errorf("%q: got %q, %v", ref, r.ID, err)
		}
	}
}

func TestNames(t *testing.T) {
	s, _ := store(t, "a:taken")
	for name, good := range map[string]bool{
		"": true, "x": true, "a-b_c.d": true, "taken": false, "last": false, "-x": false, ".x": false, "a/b": false,
		"a b": false, strings.Repeat("x", 65): false, id("q"): false,
	} {
		keep, err := s.Add(Record{ID: NewID(), Name: name, State: Running})
		if (err == nil) != good {
			t.Errorf("%q: %v", name, err)
		}
		if err == nil {
			err = keep()
		}
		if good && err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestRecordsSurviveTheDaemon(t *testing.T) {
	s, dir := store(t, "a:one")
	want, err := s.Change(id("a"), func(r *Record) {
		r.State, r.ExitCode, r.Cause = Stopped, 124, Cause{Word: "budget", Budget: "wall", Limit: 5, Peak: 6}
		r.Argv = []string{"x", "\x00\xff"}
	})
	if err != nil {
		t.Fatal(err)
	}
	rest := filepath.Join(dir, id("r"))
	if err := os.Mkdir(rest, 0o700); err != nil {
		t.Fatal(err)
	}
	again, rests, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	got, ok := again.Get(id("a"))
	if !ok || got.Cause != want.Cause || got.ExitCode != 124 || got.Cause.String() != "budget: wall" {
		t.Errorf("got %+v", got)
	}
	if len(rests) != 1 || rests[0] != id("r") {
		t.Errorf("rests %v", rests)
	}
}

func TestDamagedRecordIsAnError(t *testing.T) {
	for name, text := range map[string]string{
		"torn":          `{"v":1,"id":"`,
		"unknown field": `{"v":1,"id":"` + id("a") + `","extra":1}`,
		"other version": `{"v":2,"id":"` + id("a") + `"}`,
		"another cell":  `{"v":1,"id":"` + id("b") + `"}`,
	} {
		t.Run(name, func(t *testing.T) {
			_, dir := store(t, "a:")
			if err := os.WriteFile(filepath.Join(dir, id("a"), fileName), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, _, err := Open(dir); err == nil {
				t.Error("it was read")
			}
		})
	}
}

// A change that could not be kept did not happen.
func TestFailedChangeChangesNothing(t *testing.T) {
	s, dir := store(t, "a:")
	if err := os.RemoveAll(filepath.Join(dir, id("a"))); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Change(id("a"), func(r *Record) { r.State = Stopped }); err == nil {
		t.Fatal("it was kept")
	}
	if r, _ := s.Get(id("a")); r.State != Running {
		t.Errorf("the state is %s", r.State)
	}
}

func TestIDs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		if id := NewID(); !ValidID(id) || CheckName(id) == nil {
			t.Fatal(id)
		}
	})
	for _, bad := range []string{"", "short", strings.Repeat("1", Length), strings.Repeat("A", Length), "../" + strings.Repeat("a", Length-3)} {
		if ValidID(bad) {
			t.Errorf("%q is an id", bad)
		}
	}
}

// A kill between the first record and its name leaves the cell, a crash within the
// record the rest of none.
func TestFirstRecordThatWasCutOff(t *testing.T) {
	s, dir := store(t, "a:whole", "b:torn", "c:later")
	for _, letter := range []string{"a", "b"} {
		path := filepath.Join(s.Dir(id(letter)), fileName)
		if err := os.Rename(path, path+unfinished); err != nil {
			t.Fatal(err)
		}
	}
	for _, letter := range []string{"b", "c"} {
		if err := os.WriteFile(filepath.Join(s.Dir(id(letter)), fileName+unfinished), []byte(`{"v": 1, "id": `), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	again, rests, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	for letter, name := range map[string]string{"a": "whole", "b": "", "c": "later"} {
		if r, _ := again.Get(id(letter)); r.Name != name {
			t.Errorf("%s: got %q", letter, r.Name)
		}
		if left, _ := filepath.Glob(filepath.Join(dir, id(letter), "*"+unfinished)); len(left) > 0 {
			t.Errorf("%v is left", left)
		}
	}
	if len(rests) != 1 || rests[0] != id("b") {
		t.Errorf("rests %v", rests)
	}
}

func TestWhatIsCountedDuringAWriteStays(t *testing.T) {
	s, _ := store(t, "a:")
	var count sync.WaitGroup
	for range 100 {
		count.Go(func() { s.Count(id("a"), 1, 2) })
		count.Go(func() { _ = s.Keep(id("a")) })
	}
	if _, err := s.Change(id("a"), func(r *Record) { r.State = Stopped }); err != nil {
		t.Error(err)
	}
	count.Wait()
	if r, _ := s.Get(id("a")); r.Allowed != 100 || r.Refused != 200 || r.State != Stopped {
		t.Errorf("got %+v", r)
	}
}

func TestEndIsToldOnAFullDisk(t *testing.T) {
	dir := t.TempDir()
	s, _, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	r := Record{ID: NewID(), State: Running}
	add(t, s, r)
	// A directory in the way stands for a disk that takes nothing.
	inTheWay := filepath.Join(s.Dir(r.ID), fileName+unfinished)
	if err := os.Mkdir(inTheWay, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := s.Set(r.ID, func(r *Record) { r.State = Stopped }); err != nil {
		t.Fatal(err)
	}
	if err := s.Keep(r.ID); err == nil {
		t.Error("the end was kept in a directory")
	}
	if got, _ := s.Get(r.ID); got.State != Stopped {
		t.Errorf("a process that has gone is told as %s", got.State)
	}
	if err := os.RemoveAll(inTheWay); err != nil {
		t.Fatal(err)
	}
	add(t, s, Record{ID: NewID(), State: Building})
	again, _, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := again.Get(r.ID); got.State != Stopped {
		t.Errorf("with space again, the record still says %s", got.State)
	}
}

// TestDropNeedsNoRoom: what a cell wrote may be what fills the disk.
func TestDropNeedsNoRoom(t *testing.T) {
	s, dir := store(t, "a:one", "b:two")
	inTheWay := filepath.Join(s.Dir(id("a")), fileName+unfinished)
	// As TestEndIsToldOnAFullDisk has it, but with the error of a disk that is full.
	if err := os.Symlink("/dev/full", inTheWay); err != nil {
		t.Fatal(err)
	}
	if r, err := s.Drop(id("a")); err != nil || r.State != Dropped {
		t.Fatalf("got %v, %v", r.State, err)
	}
	states := func(s *Store) string {
		a, _ := s.Get(id("a"))
		b, _ := s.Get(id("b"))
		return string(a.State + " " + b.State)
	}
	if got := states(s); got != "dropped running" {
		t.Errorf("told: %s", got)
	}
	for _, next := range []string{"after a crash", "with room again"} {
		again, rests, err := Open(dir)
		if err != nil || len(rests) > 0 || states(again) != "dropped running" {
			t.Fatalf("%s: %s, %v, %v", next, states(again), rests, err)
		}
	}
	if _, err := os.Lstat(filepath.Join(s.Dir(id("a")), droppedName)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the mark stays: %v", err)
	}
}
