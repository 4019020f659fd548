package serve

import (
	"fmt"
	"os"
	"runtime"
	"syscall"

	"skep.dev/skep/internal/sys"
)

// boxInRoot is the program's name where it is all that there is.
const boxInRoot = "/skep-box"

// emptyRoot starts programs from a thread that has left the tree of the host. All
// boxes share its mount namespace: there is nothing in it to meet.
type emptyRoot struct {
	tasks   chan func()
	null    *os.File    // /dev/null, which is not there
	program os.FileInfo // what it is the root of
}

// holds tells whether the program at a path is the one that stands in the root.
func (e *emptyRoot) holds(path string) bool {
	info, err := os.Stat(path)
	return err == nil && os.SameFile(info, e.program)
}

// newEmptyRoot makes the root and the thread, which ends with close.
func newEmptyRoot(program string) (*emptyRoot, error) {
	info, err := os.Stat(program)
	if err != nil {
		return nil, fmt.Errorf("find the program of boxes: %w", err)
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("open a device for boxes: %w", err)
	}
	e := &emptyRoot{tasks: make(chan func()), null: null, program: info}
	made := make(chan error)
	go offFirstThread(func() {
		err := sys.EmptyRoot(program, boxInRoot[1:])
		made <- err
		if err != nil {
			return
		}
		for task := range e.tasks {
			task()
		}
	})
	if err := <-made; err != nil {
		_ = null.Close()
		return nil, err
	}
	return e, nil
}

// offFirstThread runs do on a thread that is of no other use any more and ends with
// it. It is not the process's first, whose tree /proc/self shows.
func offFirstThread(do func()) {
	runtime.LockOSThread()
	if syscall.Gettid() != os.Getpid() {
		do()
		return
	}
	elsewhere := make(chan struct{})
	go offFirstThread(func() {
		close(elsewhere)
		do()
	})
	<-elsewhere // until then nobody else can run here
	runtime.UnlockOSThread()
}

// do runs a task on the thread and waits for it.
func (e *emptyRoot) do(task func()) {
	done := make(chan struct{})
	e.tasks <- func() {
		defer close(done)
		task()
	}
	<-done
}

func (e *emptyRoot) close() {
	close(e.tasks)
	_ = e.null.Close()
}
