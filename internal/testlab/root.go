package testlab

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"skep.dev/skep/internal/sys"
)

// ownTree is a directory of a lab's root, where an ordinary user's lab has one.
const ownTree = "/skep-lab"

// ownRoot gives an ordinary user's lab a root directory of this user's: in a user
// namespace of one id the host's belongs to nobody, below which skepd keeps nothing.
// All that stands in the host's root stands in it.
func ownRoot(dir string) error {
	here, err := os.Getwd()
	if err != nil {
		return fmt.Errorf("find the working directory: %w", err)
	}
	root := filepath.Join(dir, "root")
	if err := os.Mkdir(root, 0o755); err != nil {
		return fmt.Errorf("make the lab's root: %w", err)
	}
	if err := sys.MountTmpfs(root); err != nil {
		return err
	}
	entries, err := os.ReadDir("/")
	if err != nil {
		return fmt.Errorf("read the root: %w", err)
	}
	for _, e := range entries {
		if err := show(e, "/"+e.Name(), filepath.Join(root, e.Name())); err != nil {
			return err
		}
	}
	if err := os.Mkdir(filepath.Join(root, ownTree), 0o755); err != nil {
		return fmt.Errorf("make the lab's own directory: %w", err)
	}
	if err := sys.ChangeRoot(root); err != nil {
		return err
	}
	return os.Chdir(here)
}

// smallDisk is a filesystem of a lab that is soon full, in bytes.
const smallDisk = 48 << 20

// smallAt is where it is mounted.
func smallAt() string {
	if _, err := os.Stat(ownTree); err == nil {
		return filepath.Join(ownTree, "small")
	}
	return filepath.Join(os.Getenv(labDirVariable), "small")
}

// makeSmall mounts it, once the lab has its root.
func makeSmall() error {
	if err := os.Mkdir(smallAt(), 0o755); err != nil {
		return fmt.Errorf("make the lab's small disk: %w", err)
	}
	return sys.MountSmallTmpfs(smallAt(), smallDisk)
}

// SmallDisk is a directory on a filesystem of its own, which is soon full. There is
// one, which a test of the package leaves empty.
func (l *Lab) SmallDisk() string { return smallAt() }

// show puts one entry of the old root into the new one.
func show(e fs.DirEntry, from, at string) error {
	switch {
	case e.Type()&fs.ModeSymlink != 0:
		target, err := os.Readlink(from)
		if err != nil {
			return fmt.Errorf("read a link of the root: %w", err)
		}
		return os.Symlink(target, at)
	case e.IsDir():
		if err := os.Mkdir(at, 0o755); err != nil {
			return fmt.Errorf("make the lab's root: %w", err)
		}
		return sys.BindTree(from, at)
	}
	return nil // a file in the root is nothing that a program needs
}

// Dir makes a directory with a short path, above which nothing belongs to
// anybody but this user and root: a place for skepd's own. It goes with the test.
func (l *Lab) Dir() string {
	l.t.Helper()
	parent := ""
	if _, err := os.Stat(ownTree); err == nil {
		parent = ownTree
	}
	dir, err := os.MkdirTemp(parent, "lab")
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		l.t.Fatal(err)
	}
	return dir
}
