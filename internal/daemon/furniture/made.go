package furniture

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"skep.dev/skep/internal/sys"
)

// MakeLayer makes the directories of one overlay. The upper one is what the agent
// sees as the grant's root, so that it has the mode of the base.
func MakeLayer(at string, base *os.File) (*os.File, error) {
	for _, part := range []string{"upper", "work"} {
		f, err := MakeDir(filepath.Join(at, part))
		if err != nil {
			return nil, err
		}
		_ = f.Close()
	}
	st, err := sys.StatFile(base)
	if err != nil {
		return nil, err
	}
	if st.Mode&sys.ModeTypeMask == sys.ModeDir {
		if err := os.Chmod(filepath.Join(at, "upper"), fs.FileMode(st.Mode&0o777)); err != nil {
			return nil, fmt.Errorf("prepare layer: %w", err)
		}
	}
	return MakeDir(at)
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
