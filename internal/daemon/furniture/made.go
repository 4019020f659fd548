package furniture

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"skep.dev/skep/internal/snapshot/tree"
	"skep.dev/skep/internal/sys"
)

// MakeLayer makes the directories of one overlay, those that are not there yet. The
// upper one is what the agent sees as the grant's root, so that it has the mode of
// the base. A file's layer has a base of its own, with a copy of the file.
func MakeLayer(ctx context.Context, at, name string, base *os.File) (*os.File, error) {
	st, err := sys.StatFile(base)
	if err != nil {
		return nil, err
	}
	for _, part := range []string{"upper", "work"} {
		f, err := MakeDir(filepath.Join(at, part))
		if err != nil {
			return nil, err
		}
		_ = f.Close()
	}
	if st.Mode&sys.ModeTypeMask == sys.ModeDir {
		err = os.Chmod(filepath.Join(at, "upper"), fs.FileMode(st.Mode&0o777))
	} else {
		err = copyFile(ctx, filepath.Join(at, "lower"), name, base, &st)
	}
	if err != nil {
		return nil, fmt.Errorf("prepare layer: %w", err)
	}
	return MakeDir(at)
}

// copyFile puts a copy of a file into a directory of ours. Whoever granted it opened
// it for reading: we need no right to it.
func copyFile(ctx context.Context, dir, name string, from *os.File, st *sys.FileStat) error {
	if st.Mode&sys.ModeTypeMask != sys.ModeRegular {
		return fmt.Errorf("%s is no regular file", name)
	}
	if can, err := sys.CanRead(from); err != nil || !can {
		return errors.Join(fmt.Errorf("%s was not opened for reading", name), err)
	}
	lower, err := MakeDir(dir)
	if err != nil {
		return err
	}
	defer func() { _ = lower.Close() }()
	s := tree.Stat(st)
	s.Unreadable = true // there is no digest that it must have
	xattrs, _, err := tree.Xattrs(from)
	if err != nil {
		return err
	}
	if err := tree.CopyFile(ctx, lower, name, from, s); err != nil {
		return err
	}
	return tree.Finish(lower, name, xattrs, s.Mode&0o777, s.ModTime)
}

// MakeDir makes a directory of ours and opens it.
func MakeDir(path string) (*os.File, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("make directory of the cell: %w", err)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open directory of the cell: %w", err)
	}
	return f, nil
}

// Zone is the host's time zone file, the one thing of the host that a cell is
// told (L16a).
func Zone() []byte {
	const largest = 64 << 10
	raw, err := os.ReadFile("/etc/localtime")
	if errors.Is(err, fs.ErrNotExist) || len(raw) > largest {
		return nil
	}
	return raw
}

// Hostname is the cell's name if it is one of a host, else a part of its id.
func Hostname(id, name string) string {
	for _, c := range name {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return "cell-" + id[:8]
		}
	}
	if name == "" || name[len(name)-1] == '-' || len(name) > 63 {
		return "cell-" + id[:8]
	}
	return name
}
