package sys

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// TestMountWatchSeesMounts mounts in a namespace of the test's own, with the
// runtime's poller at work as it is in a worker.
func TestMountWatchSeesMounts(t *testing.T) {
	const within = "SKEP_TEST_MOUNT_WATCH"
	if os.Getenv(within) == "" {
		self := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
		self.Env = append(os.Environ(), within+"=1")
		self.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
		}
		if out, err := self.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
		return
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = r.Close(), w.Close() }()
	dir := t.TempDir()
	watch, err := WatchMounts()
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Close()
	for _, step := range []struct {
		change func(string) error
		want   bool
	}{
		{func(string) error { return nil }, false}, {MountTmpfs, true}, {func(string) error { return nil }, false}, {UnmountTree, true},
	} {
		if err := step.change(dir); err != nil {
			t.Fatal(err)
		}
		go func() { _, _ = w.Write([]byte("x")) }() // something for the poller to report
		if _, err := r.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		if changed, err := watch.Changed(); err != nil || changed != step.want {
			t.Errorf("changed: %v, %v; want %v", changed, err, step.want)
		}
	}
}
