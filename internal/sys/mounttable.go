package sys

import (
	"fmt"
	"io"
	"strings"
	"sync"
)

// MountTable says where something is mounted in this process's mount namespace.
// It reads the kernel's table again only when that has changed. The zero value
// is ready.
type MountTable struct {
	mu     sync.Mutex
	watch  *MountWatch
	points []string
}

// Points are the paths of all mount points, in no order. The caller does not
// change the list.
func (t *MountTable) Points() ([]string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.watch == nil {
		watch, err := WatchMounts()
		if err != nil {
			return nil, err
		}
		t.watch = watch
	} else if changed, err := t.watch.Changed(); err == nil && !changed && t.points != nil {
		return t.points, nil
	}
	t.points = nil // what cannot be read again is not known any more
	if _, err := t.watch.table.Seek(0, io.SeekStart); err != nil {
		return nil, fmt.Errorf("read the table of mounts: %w", err)
	}
	table, err := io.ReadAll(t.watch.table)
	if err != nil {
		return nil, fmt.Errorf("read the table of mounts: %w", err)
	}
	t.points = mountPoints(string(table))
	return t.points, nil
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
