package sys

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// MountTable says where something is mounted in this process's mount namespace.
// It reads the kernel's table again only when that has changed. The zero value
// is ready.
type MountTable struct {
	mu     sync.Mutex
	file   *os.File
	points []string
}

// Points are the paths of all mount points, in no order. The caller does not
// change the list.
func (t *MountTable) Points() ([]string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.file == nil {
		// A plain descriptor: the runtime's poller would take the news that poll waits for.
		fd, err := unix.Open("/proc/self/mountinfo", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, fmt.Errorf("open the table of mounts: %w", err)
		}
		t.file = os.NewFile(uintptr(fd), "mountinfo")
	} else if !t.changed() {
		return t.points, nil
	}
	t.points = nil // what cannot be read again is not known any more
	if _, err := t.file.Seek(0, io.SeekStart); err != nil {
		return nil, fmt.Errorf("read the table of mounts: %w", err)
	}
	table, err := io.ReadAll(t.file)
	if err != nil {
		return nil, fmt.Errorf("read the table of mounts: %w", err)
	}
	t.points = mountPoints(string(table))
	return t.points, nil
}

// changed asks without waiting whether the table is another since it was opened or
// asked last (proc(5)).
func (t *MountTable) changed() bool {
	p := []unix.PollFd{{Fd: int32(t.file.Fd()), Events: unix.POLLPRI}}
	n, err := unix.Poll(p, 0)
	return err != nil || n > 0 || t.points == nil
}

// mountPoints is the fifth field of each line of mountinfo.
func mountPoints(table string) []string {
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	points := []string{}
	for line := range strings.Lines(table) {
		if fields := strings.Fields(line); len(fields) > 4 {
			points = append(points, unescape.Replace(fields[4]))
		}
	}
	return points
}
