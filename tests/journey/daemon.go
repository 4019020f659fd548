package journey

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"
)

// endTime bounds what a daemon may take to end: it stops its cells first.
const endTime = 30 * time.Second

// EndDaemon ends the daemon whose places are below dir, if there is one, and waits
// until it is gone; its worker follows it.
func EndDaemon(dir string) error {
	pid := Daemon(dir)
	if pid == 0 {
		return nil
	}
	process, err := os.FindProcess(pid)
	if err != nil {
		return fmt.Errorf("end skepd %d: %w", pid, err)
	}
	if err := process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("end skepd %d: %w", pid, err)
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(endTime); time.Now().Before(deadline); <-tick.C {
		if Daemon(dir) != pid {
			return nil
		}
	}
	return fmt.Errorf("skepd %d did not end within %s", pid, endTime)
}

// Daemon is the id of the daemon whose places are below dir, 0 if there is none.
func Daemon(dir string) int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0
	}
	run := []byte(filepath.Join(dir, "run"))
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		raw, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if err != nil {
			continue
		}
		args := bytes.Split(raw, []byte{0})
		is := func(a []byte) bool { return bytes.Equal(a, run) }
		if filepath.Base(string(args[0])) == "skepd" && slices.ContainsFunc(args, is) {
			return pid
		}
	}
	return 0
}
