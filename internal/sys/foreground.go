package sys

import (
	"os"

	"golang.org/x/sys/unix"
)

// LeadsForeground reports whether this process leads the group of processes that
// its terminal is for now: a shell with job control has started it, and waits for
// it to stop as well as to end.
func LeadsForeground(terminal *os.File) bool {
	fd, err := rawFD(terminal)
	if err != nil {
		return false
	}
	group, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP)
	return err == nil && group == os.Getpid()
}
