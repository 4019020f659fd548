package serve

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"skep.dev/skep/internal/sys"
)

// Bounds of one look at a cell: the worker does nothing else meanwhile.
const (
	mostProcesses   = 1 << 14
	mostDescriptors = 1 << 16
)

// unseen adds up the files without a name that the processes below a warden hold
// open on the filesystem of the layers. Each process is a descendant of it, whatever the agent does: an orphan is PID 1's.
func (w *Worker) unseen(warden, layers *os.File) (int64, error) {
	first, err := sys.PidOf(warden)
	if errors.Is(err, syscall.ESRCH) {
		return 0, nil // the cell has ended
	}
	if err != nil {
		return 0, err
	}
	st, err := sys.StatFile(layers)
	if err != nil {
		return 0, err
	}
	l := look{disk: st.Dev, counted: map[sys.Unnamed]bool{}}
	var all []int
	for todo := []int{first}; len(todo) > 0; {
		pid := todo[len(todo)-1]
		todo = append(todo[:len(todo)-1], children(pid)...)
		if all = append(all, pid); len(all) > mostProcesses {
			return 0, fmt.Errorf("the cell has more than %d processes", mostProcesses)
		}
	}
	// What a process shows of itself belongs to its user, or to root where it has
	// closed itself to others.
	closed, err := l.at(all)
	if err == nil && w.ids.capable {
		asAgent := sys.AsFileOwner(w.ids.outsideU, w.ids.outsideG, func() { _, err = l.at(closed) })
		err = errors.Join(err, asAgent)
	}
	return l.bytes, err
}

type look struct {
	bytes       int64
	descriptors int
	disk        uint64               // device of the layers
	counted     map[sys.Unnamed]bool // without their size
}

// at counts the open files of processes; one that has gone has none. It returns
// those that it may not look at.
func (l *look) at(pids []int) (closed []int, err error) {
	for _, pid := range pids {
		fds, err := os.Open(fmt.Sprintf("/proc/%d/fd", pid))
		if errors.Is(err, fs.ErrPermission) {
			closed = append(closed, pid)
		}
		if err != nil {
			continue
		}
		err = l.files(fds)
		_ = fds.Close()
		if err != nil {
			return closed, err
		}
	}
	return closed, nil
}

func (l *look) files(fds *os.File) error {
	for {
		names, err := fds.Readdirnames(1024)
		for _, name := range names {
			f, ok := sys.UnnamedFile(fds, name, l.disk)
			if id := (sys.Unnamed{Dev: f.Dev, Ino: f.Ino}); ok && !l.counted[id] {
				l.counted[id] = true
				l.bytes += f.Bytes
			}
		}
		if l.descriptors += len(names); l.descriptors > mostDescriptors {
			return fmt.Errorf("the cell has more than %d open files", mostDescriptors)
		}
		if err != nil {
			return nil //nolint:nilerr // the end of the list, or of the process
		}
	}
}

// children are the processes that a process has started or inherited.
func children(pid int) (pids []int) {
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		return nil
	}
	for _, list := range tasks {
		text, err := os.ReadFile(list)
		if err != nil {
			continue // gone meanwhile
		}
		for _, field := range strings.Fields(string(text)) {
			if pid, err := strconv.Atoi(field); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}
