package tree

import (
	"errors"
	"fmt"
	"io"
	"os"

	"skep.dev/skep/internal/snapshot"
	"skep.dev/skep/internal/sys"
)

const (
	// maxDeep bounds how many directories Held holds open.
	maxDeep = 500
	// maxLinked bounds how many files of several names Held remembers; further
	// ones count once for each name.
	maxLinked = 1 << 18
)

// Held adds what the disk holds of everything below dir, dir itself included, in
// bytes. What goes or comes meanwhile may be missed. progress is called now and
// then; its error stops the walk.
func Held(dir *os.File, progress func() error) (bytes int64, err error) {
	h := holder{progress: progress, linked: map[uint64]bool{}}
	st, err := sys.StatFile(dir)
	if err != nil {
		return 0, err
	}
	h.bytes = st.Blocks * 512
	err = h.list(dir, ".", 0)
	return h.bytes, err
}

type holder struct {
	bytes    int64
	linked   map[uint64]bool // by inode: files of several names that are counted
	progress func() error
}

func (h *holder) list(dir *os.File, name string, depth int) error {
	if depth > maxDeep {
		return fmt.Errorf("it is deeper than %d directories", maxDeep)
	}
	f, err := sys.OpenDirBeneath(dir, name)
	if Missing(err) {
		return nil // gone meanwhile
	}
	if err != nil {
		return err
	}
	defer f.Close()
	for {
		names, err := f.Readdirnames(4096)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("list %q: %w", name, err)
		}
		if err := h.progress(); err != nil {
			return err
		}
		for _, name := range names {
			if err := h.add(f, name, depth); err != nil {
				return err
			}
		}
	}
}

func (h *holder) add(dir *os.File, name string, depth int) error {
	st, err := sys.StatAt(dir, name)
	if Missing(err) {
		return nil
	}
	if err != nil {
		return err
	}
	isDir := TypeOf(&st) == snapshot.Dir
	if !isDir && st.Nlink > 1 {
		if h.linked[st.Ino] {
			return nil
		}
		if len(h.linked) < maxLinked {
			h.linked[st.Ino] = true
		}
	}
	h.bytes += st.Blocks * 512
	if isDir {
		return h.list(dir, name, depth+1)
	}
	return nil
}
