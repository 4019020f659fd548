// Package tree reads, copies and removes single objects of a tree, always by a
// name in an open directory.
//
// Its laws:
//   - No path is resolved through a symlink, a magic link, a mount or "..".
//   - A FIFO, socket or device is never opened (S5).
//   - Contents stream; memory is bounded per object (S12).
package tree

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"sort"
	"strings"
	"syscall"
	"time"

	"skep.dev/skep/internal/snapshot"
	"skep.dev/skep/internal/sys"
)

// TypeOf translates the type bits of a stat.
func TypeOf(st *sys.FileStat) snapshot.Type {
	switch st.Mode & sys.ModeTypeMask {
	case sys.ModeRegular:
		return snapshot.File
	case sys.ModeDir:
		return snapshot.Dir
	case sys.ModeSymlink:
		return snapshot.Symlink
	case sys.ModeFIFO:
		return snapshot.FIFO
	case sys.ModeSocket:
		return snapshot.Socket
	case sys.ModeChar:
		return snapshot.CharDevice
	default:
		return snapshot.BlockDevice
	}
}

// Missing reports whether err says that nothing has this name: no such entry,
// or something on the way to it that is no directory.
func Missing(err error) bool {
	return errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ENOTDIR)
}

// Names lists a directory in byte order.
func Names(dir *os.File) ([]string, error) {
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("list %q: %w", dir.Name(), err)
	}
	sort.Strings(names)
	return names, nil
}

// Reader reads the states of objects. The zero Reader works; Progress, where
// set, is called now and then while a content is hashed, and its error stops
// the reading.
type Reader struct {
	Progress func(bytes int64) error
}

// Stat fills what a stat alone tells: no digest, no target, no attributes. The
// size of a directory is 0: filesystems differ in it.
func Stat(st *sys.FileStat) snapshot.State {
	s := snapshot.State{
		Type: TypeOf(st), Mode: st.Mode & 0o7777, UID: st.Uid, GID: st.Gid,
		ModTime: time.Unix(st.Mtim.Unix()),
	}
	switch s.Type {
	case snapshot.File:
		s.Size = st.Size
	case snapshot.Symlink:
		s.Mode = 0 // it has none that counts
		s.Size = st.Size
	}
	return s
}

// At reads the whole state of name in dir: absent (the zero State, no error),
// or with digest, target and attributes. A file that may not be opened is
// marked Unreadable. The stat is returned beside it, zero for absent.
func (r Reader) At(ctx context.Context, dir *os.File, name string) (snapshot.State, sys.FileStat, error) {
	st, err := sys.StatAt(dir, name)
	if Missing(err) {
		return snapshot.State{}, sys.FileStat{}, nil
	}
	if err != nil {
		return snapshot.State{}, st, err
	}
	s := Stat(&st)
	switch s.Type {
	case snapshot.Symlink:
		if s.Target, err = sys.ReadlinkAt(dir, name); err != nil {
			return s, st, err
		}
		s.Size = int64(len(s.Target))
		s.Digest = sha256.Sum256([]byte(s.Target))
	case snapshot.File, snapshot.Dir:
		err = r.open(ctx, dir, name, &s, &st)
	}
	return s, st, err
}

// open adds what needs a descriptor.
func (r Reader) open(ctx context.Context, dir *os.File, name string, s *snapshot.State, st *sys.FileStat) error {
	f, err := sys.OpenBeneath(dir, name, os.O_RDONLY, 0)
	if errors.Is(err, syscall.EACCES) || errors.Is(err, syscall.EPERM) {
		s.Unreadable = true
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	return r.File(ctx, f, st, s)
}

// File adds digest, size and attributes of the open file or directory f to s.
// It fails if f is not the object that st describes.
func (r Reader) File(ctx context.Context, f *os.File, st *sys.FileStat, s *snapshot.State) error {
	now, err := sys.StatFile(f)
	if err != nil {
		return err
	}
	if now.Ino != st.Ino || now.Dev != st.Dev {
		return fmt.Errorf("read %q: it was replaced meanwhile", f.Name())
	}
	if s.Type == snapshot.File {
		if s.Digest, s.Size, err = r.hash(ctx, f); err != nil {
			return fmt.Errorf("hash %q: %w", f.Name(), err)
		}
	}
	s.Xattrs, s.Oversized, err = Xattrs(f)
	return err
}

// progressEvery is how many bytes are hashed between two looks at the context
// and calls of Progress.
const progressEvery = 16 << 20

func (r Reader) hash(ctx context.Context, f io.Reader) (digest [32]byte, size int64, err error) {
	h := sha256.New()
	for {
		if err := ctx.Err(); err != nil {
			return digest, size, err
		}
		n, err := io.CopyN(h, f, progressEvery)
		size += n
		if errors.Is(err, io.EOF) {
			h.Sum(digest[:0])
			return digest, size, nil
		}
		if err != nil {
			return digest, size, err
		}
		if r.Progress != nil {
			if err := r.Progress(size); err != nil {
				return digest, size, err
			}
		}
	}
}

const (
	userPrefix    = "user."
	overlayPrefix = "user.overlay."
)

// Xattrs reads the attributes that a difference knows: user.* without the
// overlay's own, sorted. oversized says that they went over the bound and were
// left out.
func Xattrs(f *os.File) (xattrs []snapshot.Xattr, oversized bool, err error) {
	names, err := sys.ListXattrs(f)
	if err != nil {
		return nil, false, err
	}
	sort.Strings(names)
	total := 0
	for _, name := range names {
		if !strings.HasPrefix(name, userPrefix) || strings.HasPrefix(name, overlayPrefix) {
			continue
		}
		value, found, err := sys.GetXattr(f, name)
		if err != nil {
			return nil, false, err
		}
		if !found {
			continue
		}
		total += len(name) + len(value)
		if len(xattrs) == snapshot.MaxXattrs || total > snapshot.MaxXattrTotal {
			return nil, true, nil
		}
		xattrs = append(xattrs, snapshot.Xattr{Name: name, Value: value})
	}
	return xattrs, false, nil
}
