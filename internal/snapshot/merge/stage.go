package merge

import (
	"context"
	"fmt"
	"os"
	"syscall"

	"skep.dev/skep/internal/snapshot"
	"skep.dev/skep/internal/snapshot/merge/journal"
	"skep.dev/skep/internal/snapshot/tree"
	"skep.dev/skep/internal/sys"
)

// stage makes every new object in the staging directories and records their
// inodes. The granted tree itself does not change.
func (t *transaction) stage(ctx context.Context) error {
	used := map[int]bool{}
	for i := range t.units {
		used[t.units[i].Root] = true
	}
	for i, r := range t.roots {
		if !used[i] {
			continue
		}
		if err := t.do("make staging"); err != nil {
			return err
		}
		if err := t.makeStaging(r); err != nil {
			return fmt.Errorf("stage in %s: %w", r.path, err)
		}
	}
	links := map[linkKey]linked{}
	next, stop := t.ahead(ctx)
	defer stop()
	t.next = next
	for i := range t.units {
		if err := t.stageUnit(ctx, i, links); err != nil {
			return fmt.Errorf("stage %q: %w", t.units[i].Path, err)
		}
	}
	if err := t.syncRoots(); err != nil {
		return err
	}
	if err := t.do("staged"); err != nil {
		return err
	}
	for i := 0; i < len(t.units); i += journal.PartSize {
		var part []journal.Object
		for _, u := range t.units[i:min(i+journal.PartSize, len(t.units))] {
			part = append(part, u.New)
		}
		if err := t.journal.Write(journal.Record{IDs: part}); err != nil {
			return err
		}
	}
	return t.journal.Write(journal.Record{Phase: journal.Staged})
}

// makeStaging opens the root up first where it does not even let its owner
// write: recovery resets it, as it does every touched directory.
func (t *transaction) makeStaging(r *root) error {
	st, err := sys.StatFile(r.dir)
	if err != nil {
		return err
	}
	if st.Mode&0o300 != 0o300 && int(st.Uid) == os.Geteuid() {
		if err := sys.ChmodAt(r.dir, ".", st.Mode&0o7777|0o700); err != nil {
			return err
		}
	}
	if err := sys.MkdirAt(r.dir, r.name, 0o700); err != nil {
		return err
	}
	if err := r.openStaging(); err != nil {
		return err
	}
	r.near = t.undoes == "" && t.reaches(r)
	return nil
}

// linkKey is one inode of the layer, linked a staged file that has it.
type linkKey struct {
	root  int
	group uint64
}

type linked struct {
	name  string
	state snapshot.State
}

func (t *transaction) stageUnit(ctx context.Context, i int, links map[linkKey]linked) error {
	u := &t.units[i]
	if len(u.After) == 0 {
		return nil
	}
	staging := t.roots[u.Root].staging
	for n := range u.After {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := t.do("stage"); err != nil {
			return err
		}
		if err := t.stageNode(ctx, i, n, links); err != nil {
			return fmt.Errorf("%q: %w", u.After[n].Rel, err)
		}
	}
	// Directories last and deepest first: filling one moves its time.
	for n := len(u.After) - 1; n >= 0; n-- {
		s := &u.After[n].State
		if s.Type != snapshot.Dir {
			continue
		}
		mode := s.Mode
		if n == 0 {
			mode |= 0o700 // a rename must be able to rewrite its ".."; settle sets the rest
		}
		if err := inStaging(staging, i, u.After[n].Rel, func(dir *os.File, name string) error {
			return tree.Finish(dir, name, s.Xattrs, mode, s.ModTime)
		}); err != nil {
			return err
		}
	}
	id, _, err := ids(staging, unitName(i))
	u.New = id
	return err
}

// inStaging runs do with the directory that holds a node of unit i.
func inStaging(staging *os.File, i int, rel string, do func(dir *os.File, name string) error) error {
	path := unitName(i)
	if rel != "." {
		path += "/" + rel
	}
	dir, name, err := sys.OpenParentBeneath(staging, path)
	if err != nil {
		return err
	}
	defer dir.Close()
	return do(dir, name)
}

func (t *transaction) stageNode(ctx context.Context, i, n int, links map[linkKey]linked) error {
	u := &t.units[i]
	node := &u.After[n]
	staging := t.roots[u.Root].staging
	return inStaging(staging, i, node.Rel, func(dir *os.File, name string) error {
		switch node.State.Type {
		case snapshot.Dir:
			return sys.MkdirAt(dir, name, 0o700)
		case snapshot.Symlink:
			if err := sys.SymlinkAt(node.State.Target, dir, name); err != nil {
				return err
			}
			return sys.SetModTimeAt(dir, name, node.State.ModTime)
		case snapshot.File:
			full := unitName(i) + "/" + node.Rel
			if node.Rel == "." {
				full = unitName(i)
			}
			key := linkKey{u.Root, node.Group}
			if first, ok := links[key]; ok && node.Group != 0 && first.state.Same(node.State) {
				return sys.LinkAt(staging, first.name, full)
			}
			if err := t.stageFile(ctx, i, n, dir, name); err != nil {
				return err
			}
			links[key] = linked{full, node.State}
			return nil
		}
		return fmt.Errorf("a %s is never merged", node.State.Type)
	})
}

func (t *transaction) stageFile(ctx context.Context, i, n int, dir *os.File, name string) error {
	u := &t.units[i]
	s := &u.After[n].State
	src, err := t.next(i, n)
	if src != nil {
		defer src.Close()
	}
	if err != nil {
		return err
	}
	if err := tree.CopyFile(ctx, dir, name, src, *s); err != nil {
		return err
	}
	if err := t.keepOwner(u, n, src, dir, name); err != nil {
		return err
	}
	return tree.Finish(dir, name, s.Xattrs, s.Mode&0o777, s.ModTime)
}

// keepOwner gives a staged file the owner of the file that it replaces, or
// that its saved content has, where the caller may do so. Else, and for what is
// new, ownership is the caller's.
func (t *transaction) keepOwner(u *journal.Unit, n int, src, dir *os.File, name string) error {
	var st sys.FileStat
	var err error
	switch {
	case t.undoes != "":
		st, err = sys.StatFile(src)
	case n == 0 && len(u.Before) > 0 && u.Before[0].State.Type == snapshot.File:
		var parent *os.File
		var last string
		if parent, last, err = sys.OpenParentBeneath(t.roots[u.Root].dir, u.Path); err == nil {
			st, err = sys.StatAt(parent, last)
			parent.Close()
		}
	default:
		return nil
	}
	if err != nil {
		return err
	}
	err = sys.ChownAt(dir, name, st.Uid, st.Gid)
	if denied(err) || isErrno(err, syscall.EINVAL) {
		return nil
	}
	return err
}
