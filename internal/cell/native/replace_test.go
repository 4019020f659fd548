package native_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"skep.dev/skep/internal/cell"
	"skep.dev/skep/internal/cell/celltest"
	"skep.dev/skep/internal/cell/native"
	"skep.dev/skep/internal/sys"
)

// ownPrograms are copies that the test may replace.
func ownPrograms(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for up := dir; strings.HasPrefix(up, os.TempDir()+"/"); up = filepath.Dir(up) {
		if err := os.Chmod(up, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"skep-worker", "skep-warden", "skep-box"} {
		content, err := os.ReadFile(celltest.Program(t, name))
		if err != nil {
			t.Fatal(err)
		}
		putProgram(t, filepath.Join(dir, name), content)
	}
	t.Setenv("SKEP_BIN", dir)
	return dir
}

// putProgram puts a program in the place of another, as a package manager does.
func putProgram(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path+".new", content, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

func openFiles(t *testing.T, pid int) int {
	t.Helper()
	fds, err := os.ReadDir("/proc/" + strconv.Itoa(pid) + "/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(fds)
}

// The worker is replaced in its process: cells live on, what is begun is done again,
// and it holds no more than before, however often.
func TestWorkerIsReplaced(t *testing.T) {
	ownPrograms(t)
	d, h := prepared(t)
	driver := d.(*native.Driver)
	c := celltest.New(t, "/bin/bash", "-c", "read -t 60; exit 7")
	r := c.Start(d)

	ours, theirs, err := sys.SeqpacketPair()
	if err != nil {
		t.Fatal(err)
	}
	box, err := d.Layer(context.Background(), theirs, cell.LayerPowers{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = theirs.Close()
	before := 0
	for turn := range 50 {
		built, err := driver.Replace(context.Background())
		if err != nil || built == "" {
			t.Fatalf("replacement %d: %q, %v", turn, built, err)
		}
		if turn == 0 {
			before = openFiles(t, h.worker)
		}
	}
	if after := openFiles(t, h.worker); after > before+4 { // a child or two may not be reaped yet
		t.Errorf("%d files are open after 50 replacements, %d after the first", after, before)
	}
	_ = ours.Close() // which ends the layer process, a child from before
	<-box.Done()
	goneSoon(t, box.Pid())
	soon(t, "reaped child", func() bool { return text(box.Pid(), "stat") == "" })

	send(t, c, 0, []byte("\n"))
	<-r.Done()
	if got := r.Result(); got.ExitCode != 7 || got.Left != nil {
		t.Errorf("the cell of before ended with %+v", got)
	}
	if out, got := celltest.New(t, "/bin/echo", "after").RunOn(d); out != "after\n" || got.ExitCode != 0 {
		t.Errorf("a cell of after wrote %q and ended with %+v", out, got)
	}
}

// A successor that cannot serve takes nobody's place.
func TestWorkerStaysWhereItsSuccessorFails(t *testing.T) {
	dir := ownPrograms(t)
	var cmd *exec.Cmd
	d := celltest.Driver(t, func(c *exec.Cmd) { cmd = c })
	c := celltest.New(t, "/bin/bash", "-c", "read -t 60; exit 7")
	r := c.Start(d)
	worker, warden := filepath.Join(dir, "skep-worker"), filepath.Join(dir, "skep-warden")
	good, err := os.ReadFile(worker)
	if err != nil {
		t.Fatal(err)
	}
	for name, break_ := range map[string]func(){
		"missing":       func() { _ = os.Remove(worker) },
		"ends at once":  func() { putProgram(t, worker, []byte("#!/bin/sh\nexit 0\n")) },
		"no program":    func() { putProgram(t, worker, []byte("nothing")) },
		"without child": func() { putProgram(t, worker, good); _ = os.Remove(warden) },
	} {
		break_()
		if built, err := d.(*native.Driver).Replace(context.Background()); err == nil || !strings.Contains(err.Error(), worker) {
			t.Errorf("%s: it was replaced by %q, %v", name, built, err)
		}
	}
	if _, err := os.Stat("/proc/" + strconv.Itoa(cmd.Process.Pid)); err != nil {
		t.Error(err)
	}
	send(t, c, 0, []byte("\n"))
	<-r.Done()
	if got := r.Result(); got.ExitCode != 7 || got.Left != nil {
		t.Errorf("the cell ended with %+v", got)
	}
}
