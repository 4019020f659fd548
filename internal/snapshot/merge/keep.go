package merge

import (
	"errors"
	"os"
	"path/filepath"

	"skep.dev/skep/internal/snapshot"
	"skep.dev/skep/internal/snapshot/tree"
	"skep.dev/skep/internal/sys"
)

// What a merge takes out of the tree is kept for Undo. Where the user's state lies on
// the filesystem of the tree, an old file is moved there when the merge is done, which
// writes nothing; else, and where it has another name or somebody has it open for
// writing, it is copied before (save).

const probeName = "probe"

// reaches tries whether the staging directory and the state are of one mount.
func (t *transaction) reaches(r *root) bool {
	old, err := os.Open(filepath.Join(t.dir, oldName))
	if err != nil {
		return false
	}
	defer old.Close()
	f, err := sys.OpenBeneath(r.staging, probeName, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return false
	}
	f.Close()
	if err := sys.RenameNewAt(r.staging, probeName, old, probeName); err != nil {
		_ = sys.UnlinkAt(r.staging, probeName) // else it goes with the staging directory
		return false
	}
	return sys.UnlinkAt(old, probeName) == nil
}

// moves says that a file which came out of the tree, and is what the hash bound, can wait
// for keep: it is ours alone.
func (r *root) moves(f *os.File, st *sys.FileStat) bool {
	return r.near && st.Nlink == 1 && int(st.Uid) == os.Geteuid() && sys.Unwritten(f)
}

// keep moves what was not copied. The tree is "after": a crash has it called again.
func (t *transaction) keep() error {
	old, err := os.Open(filepath.Join(t.dir, oldName))
	if err != nil {
		return err
	}
	moved := false
	for i := range t.units {
		r := t.roots[t.units[i].Root]
		if err = r.openStaging(); err != nil {
			break
		}
		for n := 0; n < len(t.units[i].Before) && r.staging != nil && err == nil; n++ {
			var one bool
			one, err = t.keepNode(old, i, n)
			moved = moved || one
		}
		if err != nil {
			break
		}
	}
	if moved && err == nil {
		err = sys.SyncFilesystem(old)
	}
	return errors.Join(err, old.Close())
}

func (t *transaction) keepNode(old *os.File, i, n int) (moved bool, err error) {
	node, name := &t.units[i].Before[n], savedName(i, n)
	if node.State.Type != snapshot.File {
		return false, nil
	}
	if _, err := sys.StatAt(old, name); !tree.Missing(err) {
		return false, err // it was copied, or moved before a crash
	}
	if err := t.do("keep"); err != nil {
		return false, err
	}
	err = inStaging(t.roots[t.units[i].Root].staging, i, node.Rel, func(dir *os.File, last string) error {
		// Readable for Undo, whatever its mode was, which the journal has.
		if err := sys.ChmodAt(dir, last, 0o600); err != nil {
			return err
		}
		return sys.RenameNewAt(dir, last, old, name)
	})
	if tree.Missing(err) {
		return false, nil // its staging directory was half removed before a crash
	}
	return err == nil, err
}
