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
	// maxRelative is how long a path Held opens in one step, in bytes; the kernel takes
	// one of 4096. Where a tree is deeper it holds a directory open, and begins anew there.
	maxRelative = 3500
	// maxAnchors bounds the directories that Held holds open beside the one that it lists.
	maxAnchors = 200
	// maxLinked bounds how many files of several names Held remembers; further
	// ones count once for each name.
	maxLinked = 1 << 18
)

// Held adds what the disk holds of everything below dir, dir itself included, in
// bytes, and [sys.InodeSize] for each inode. What goes or comes meanwhile may be missed.
// progress is called now and then; its error stops the walk.
func Held(dir *os.File, progress func() error) (bytes int64, err error) {
	h := holder{progress: progress, linked: map[uint64]bool{}}
	st, err := sys.StatFile(dir)
	if err != nil {
		return 0, err
	}
	h.bytes = st.Blocks*512 + sys.InodeSize
	err = h.list(dir, ".")
	return h.bytes, err
}

type holder struct {
	bytes    int64
	linked   map[uint64]bool // by inode: files of several names that are counted
	anchors  int             // directories held open
	progress func() error
}

// list counts what is in the directory at a path below anchor. The depth of a hostile
// tree costs no descriptors, but for one in each maxRelative bytes of its path.
func (h *holder) list(anchor *os.File, path string) error {
	f, err := sys.OpenDirBeneath(anchor, path)
	if Missing(err) {
		return nil // gone meanwhile
	}
	if err != nil {
		return err
	}
	dirs, err := h.count(f)
	if err == nil && len(dirs) > 0 && len(path) > maxRelative {
		if h.anchors++; h.anchors > maxAnchors {
			err = errors.New("its directories are nested too deeply to be counted: remove them (`skep drop`; a kept home: delete its directory)")
		} else {
			err = h.lists(f, ".", dirs)
		}
		h.anchors--
		return errors.Join(err, f.Close())
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return h.lists(anchor, path, dirs)
}

func (h *holder) lists(anchor *os.File, path string, dirs []string) error {
	for _, name := range dirs {
		if err := h.list(anchor, path+"/"+name); err != nil {
			return err
		}
	}
	return nil
}

// count adds what is directly in a directory, and names the directories there.
func (h *holder) count(dir *os.File) (dirs []string, err error) {
	for {
		names, err := dir.Readdirnames(4096)
		if errors.Is(err, io.EOF) {
			return dirs, nil
		}
		if err != nil {
			return nil, fmt.Errorf("list %q: %w", dir.Name(), err)
		}
		if err := h.progress(); err != nil {
			return nil, err
		}
		for _, name := range names {
			isDir, err := h.add(dir, name)
			if err != nil {
				return nil, err
			}
			if isDir {
				dirs = append(dirs, name)
			}
		}
	}
}

func (h *holder) add(dir *os.File, name string) (isDir bool, err error) {
	st, err := sys.StatAt(dir, name)
	if Missing(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	isDir = TypeOf(&st) == snapshot.Dir
	if !isDir && st.Nlink > 1 {
		if h.linked[st.Ino] {
			return false, nil
		}
		if len(h.linked) < maxLinked {
			h.linked[st.Ino] = true
		}
	}
	h.bytes += st.Blocks*512 + sys.InodeSize
	return isDir, nil
}
