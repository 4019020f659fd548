package attack

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"skep.dev/skep/internal/testlab"
)

// TestStateAsAGrant: the daemon's state, run-time and config directories are no
// grant, by no name; in a grant that contains them they are not there, and what
// private directories of a home it contains is not there either (L8b).
func TestStateAsAGrant(t *testing.T) { testlab.Test(t, stateAsAGrant) }

func stateAsAGrant(t *testing.T, lab *testlab.Lab) {
	s := install(t, lab)
	s.start()
	if out, complaint, status := s.try("run", "--yes", "--profile", s.profile(""), "--", "/bin/true"); status != 0 {
		t.Fatalf("a run that fills the state: %d %s%s", status, out, complaint)
	}
	link := filepath.Join(s.project, "link")
	if err := os.Symlink(s.state, link); err != nil {
		t.Fatal(err)
	}
	for name, path := range map[string]string{
		"the state": s.state, "the keys": filepath.Join(s.state, "keys"), "the run-time directory": s.run,
		"the daemon's socket": filepath.Join(s.run, "api.sock"), "a symlink to the state": link,
		"a way round": s.project + "/../state/ledger", "the config": s.config, "through a symlink": filepath.Join(link, "ledger"),
	} {
		for _, rights := range []string{"ro", "rw"} {
			profile := s.profile("  - {path: " + path + ", rights: " + rights + "}\n")
			if out, _, status := s.try("check", profile); status == 0 {
				t.Errorf("skep check takes %s (%s) as a grant:\n%s", name, rights, out)
			}
			if out, _, status := s.try("run", "--yes", "--profile", profile, "--", "/bin/true"); status == 0 {
				t.Errorf("skep run takes %s (%s) as a grant:\n%s", name, rights, out)
			}
		}
	}

	// All of it in one wide grant: what is beside the state is seen, the state is not.
	beside := write(t, filepath.Join(s.dir, "beside"), "beside", 0o644)
	config := write(t, filepath.Join(s.config, "config.yaml"), "# config\n", 0o644)
	keys := find(t, filepath.Join(s.state, "keys"))
	ledger := find(t, filepath.Join(s.state, "ledger"))
	pid, _ := victim(t)
	args := func(pid string) []string {
		return []string{pid, s.project, "beside=" + beside, "a key=" + keys, "the ledger=" + ledger, "the config=" + config}
	}
	for _, o := range (attack{technique: "hostfiles", outside: args(pid)}).tryOutside(t) {
		if o.verdict != escaped && !(o.name == "open_by_handle_at" && os.Getuid() != 0) {
			t.Errorf("%s cannot be read outside, so it proves nothing: %s", o.name, o.why)
		}
	}
	for _, rights := range []string{"ro", "rw"} {
		wide := s.profile("  - {path: " + s.dir + ", rights: " + rights + "}\n")
		for _, i := range s.attack(wide, "hostfiles", args("self")...) {
			seen := strings.HasPrefix(i.name, "beside")
			if seen != (i.verdict == escaped) {
				t.Errorf("in a %s grant of all of it, %s is %s: %s", rights, i.name, i.verdict, i.why)
			}
		}
	}
}

// find is the first regular file below a directory.
func find(t *testing.T, dir string) string {
	t.Helper()
	var found string
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if info, e := os.Stat(path); err == nil && e == nil && info.Mode().IsRegular() && info.Size() > 0 && found == "" {
			found = path
		}
		return err
	})
	if err != nil || found == "" {
		t.Fatalf("no file below %s: %v", dir, err)
	}
	return found
}

// TestBG21SocketsOfSkep: the daemon's, the handover's, the warden's: no cell reaches
// one, though the same user outside does (L15, B75).
func TestBG21SocketsOfSkep(t *testing.T) { testlab.Test(t, socketsOfSkep) }

func socketsOfSkep(t *testing.T, lab *testlab.Lab) {
	s := install(t, lab)
	s.start()
	out, complaint, status := s.try("run", "--yes", "--detach", "--profile", s.profile(""), "--", "/bin/sleep", "600")
	if status != 0 {
		t.Fatalf("skep run --detach: %d %s%s", status, out, complaint)
	}
	id := strings.TrimSpace(out)
	t.Cleanup(func() {
		if out, complaint, status := s.try("stop", id); status != 0 {
			t.Errorf("skep stop: %d %s%s", status, out, complaint)
		}
	})
	warden := filepath.Join(s.run, "cells", id, "w")
	if _, err := os.Stat(warden); err != nil {
		t.Fatalf("the socket of the warden of %q: %v", id, err)
	}
	pid, _ := victim(t)
	abstract := "skep-attack-" + filepath.Base(s.dir)
	listen(t, "unix", "@"+abstract)
	args := func(seqpacket, pid string) []string {
		return []string{filepath.Join(s.run, "api.sock"), filepath.Join(s.run, seqpacket), "", abstract, pid}
	}
	// Not the warden's: whoever connects there is its daemon from then on.
	for _, o := range (attack{technique: "unixpath", outside: args("fd.sock", pid)}).tryOutside(t) {
		if o.verdict != escaped && o.name != "datagram socket by path" {
			t.Errorf("%s is not reached outside, so it proves nothing: %s", o.name, o.why)
		}
	}
	for _, socket := range []string{"fd.sock", "cells/" + id + "/w"} {
		for _, profile := range []string{"", "  - {path: " + s.dir + ", rights: rw}\n"} {
			for _, i := range s.attack(s.profile(profile), "unixpath", args(socket, "self")...) {
				if i.verdict != held {
					t.Errorf("%s, %s: %s", socket, i.name, i.why)
				}
			}
		}
	}
}

// TestTechniquesInACellOfTheDaemon: the attacks that need nothing of the host,
// in the cell that a user gets, whose furniture and filter are the daemon's.
func TestTechniquesInACellOfTheDaemon(t *testing.T) { testlab.Test(t, techniquesInACellOfTheDaemon) }

func techniquesInACellOfTheDaemon(t *testing.T, lab *testlab.Lab) {
	s := install(t, lab)
	s.start()
	pid, address := victim(t)
	readable := t.TempDir()
	fill(t, readable)
	budget := "  - {path: " + readable + ", rights: ro}\nbudget:\n  pids: 200\n  memory: {limit: 1GiB, if_available: true}\n  cpus: {limit: 1, if_available: true}\n"
	for _, a := range [][]string{
		{"abi"}, {"kernel"}, {"sockets"}, {"terminal"}, {"namespaces", "1"}, {"proc", "1"}, {"processes", pid, address},
		{"processes", "pid1", address}, {"mounts", s.project, "/usr"}, {"devices", s.project, "/dev/kmsg", "/dev/mem", "/dev/fuse"},
		{"readonly", readable, s.project}, {"descriptors", "SKEP_STATE", s.state}, {"privilege", "setuid=/usr/bin/su"},
	} {
		t.Run(a[0], func(t *testing.T) {
			here := *s
			here.t = t
			for _, i := range here.attack(here.profile(budget), a[0], a[1:]...) {
				if i.verdict == escaped {
					t.Errorf("%s: %s", i.name, i.why)
				}
			}
		})
	}
	if out, complaint, status := s.try("ledger", "verify"); status != 0 {
		t.Errorf("the record does not verify: %d %s%s", status, out, complaint)
	}
}
