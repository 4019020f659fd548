// Package inplace lets a program be replaced in its own process: what the new one finds
// open, and which processes are its children.
//
// Its law: where the replacement fails, nothing has changed.
package inplace

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Number is the descriptor's number of an open file, which a program that takes this
// one's place finds it by ([Execute]). Valid while f is open.
func Number(f *os.File) (int, error) {
	fd, err := number(f)
	if err != nil {
		return -1, fmt.Errorf("number of %s: %w", f.Name(), err)
	}
	return fd, nil
}

// number does not change the blocking mode, as (*os.File).Fd would.
func number(f *os.File) (fd int, err error) {
	conn, err := f.SyscallConn()
	if err != nil {
		return -1, err
	}
	err = conn.Control(func(n uintptr) { fd = int(n) })
	return fd, err
}

// Execute replaces this program in its own process (execve(2)). Of what is open the
// new one finds the standard descriptors and files, under their numbers; children stay
// children. It returns only where it failed, and then everything is as it was.
func Execute(program string, args, env []string, files ...*os.File) error {
	// No child may be started between: it would inherit what is for our successor.
	syscall.ForkLock.Lock()
	defer syscall.ForkLock.Unlock()
	var open []int
	err := func() error {
		for _, f := range files {
			fd, err := number(f)
			if err != nil {
				return err
			}
			if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, 0); err != nil {
				return err
			}
			open = append(open, fd)
		}
		return syscall.Exec(program, args, env)
	}()
	for _, fd := range open {
		_, _ = unix.FcntlInt(uintptr(fd), unix.F_SETFD, unix.FD_CLOEXEC)
	}
	runtime.KeepAlive(files)
	return fmt.Errorf("execute %s: %w", program, err)
}

// CloseInherited closes every descriptor from first on that this process was started
// with and has not taken over (sys.Inherited marks those close-on-exec).
func CloseInherited(first int) error {
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return fmt.Errorf("close inherited descriptors: %w", err)
	}
	for _, e := range fds {
		fd, err := strconv.Atoi(e.Name())
		if err != nil || fd < first {
			continue
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			_ = unix.Close(fd)
		}
	}
	return nil
}

// Children are the processes that this one has started or inherited (proc(5),
// /proc/PID/task/TID/children).
func Children() ([]int, error) {
	tasks, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil {
		return nil, fmt.Errorf("list children: %w", err)
	}
	var pids []int
	for _, list := range tasks {
		text, err := os.ReadFile(list)
		if errors.Is(err, os.ErrNotExist) {
			continue // a thread that has ended
		}
		if err != nil {
			return nil, fmt.Errorf("list children: %w", err)
		}
		for _, field := range strings.Fields(string(text)) {
			if pid, err := strconv.Atoi(field); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids, nil
}

// ReapChildren waits in the background for each process that is a child now: one that
// was started by the program whose place this one has taken.
func ReapChildren() error {
	pids, err := Children()
	for _, pid := range pids {
		p, err := os.FindProcess(pid)
		if err != nil {
			return fmt.Errorf("wait for child %d: %w", pid, err)
		}
		go func() { _, _ = p.Wait() }()
	}
	return err
}
