package native

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"

	"skep.dev/skep/internal/cell"
	"skep.dev/skep/internal/right"
	"skep.dev/skep/internal/sys"
)

// A unix socket in a tree that is shown as it is can be connected to by its path,
// whatever the mount's flags (L15). An overlay gives every file an inode of its
// own, by which no socket is found, but costs a quarter on a first look-up. So
// programs and libraries that the packages of the operating system put on the disk
// are shown as they are, and everything else, read-only too, through an overlay
// (decision 5).

// systemTree is the tree of the system's packages that a path lies in, or "". Of
// /etc it is what packages generate, and no configuration of a service. /usr/local
// belongs to the machine's owner.
func systemTree(p string) string {
	for _, tree := range [...]string{
		"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store",
		"/etc/alternatives", "/etc/ca-certificates", "/etc/pki", "/etc/ssl",
	} {
		if right.Contains(tree, p) && !right.Contains(ownersTree, p) {
			return tree
		}
	}
	return ""
}

const ownersTree = "/usr/local"

// plain reports whether a read-only directory may be shown as it is: it lies in a
// tree of the system's, is root's and writable by nobody else, and it does not stand
// in another mount. Mounts within it are other trees, and foreign: they are to be
// covered. points are the host's mount points; nil if they are not known.
func plain(g cell.Grant, points []string) (foreign []string, ok bool) {
	const writableByOthers = 0o022
	tree := systemTree(g.Path)
	if tree == "" || points == nil {
		return nil, false
	}
	for _, at := range points {
		own := at == tree && !strings.HasPrefix(tree, "/etc/") // /usr may well be a filesystem of its own
		switch {
		case own, !right.Contains(tree, at), right.Contains(ownersTree, at):
		case right.Contains(at, g.Path):
			return nil, false
		case right.Contains(g.Path, at):
			foreign = append(foreign, at)
		}
	}
	slices.Sort(foreign)
	st, err := sys.StatFile(g.Object)
	return slices.Compact(foreign), err == nil && st.Uid == 0 && st.Mode&writableByOthers == 0
}

// withMount names what is mounted within a grant, where an ordinary user's kernel
// refused to overlay the grant for that: beneath such a mount nobody but root looks.
func withMount(err error, grants []cell.Grant, points []string) error {
	if !errors.Is(err, syscall.EINVAL) {
		return err
	}
	for _, g := range grants {
		if _, shown := plain(g, points); shown || !g.Dir {
			continue
		}
		for _, at := range points {
			if at != g.Path && right.Contains(g.Path, at) {
				return fmt.Errorf("%w: %s is mounted within the granted %s, and only root may show a tree without what is mounted in it: unmount it, or grant directories beside it",
					err, at, g.Path)
			}
		}
	}
	return err
}

// withOwnersTree adds the owner's tree within a grant of the system's as a grant of
// its own. The caller closes what was opened, beneath the grant that holds it.
func withOwnersTree(grants []cell.Grant) (all []cell.Grant, opened []*os.File) {
	holder := slices.IndexFunc(grants, func(g cell.Grant) bool { return g.Path == "/usr" && g.Dir && !g.Writable })
	if holder < 0 || slices.ContainsFunc(grants, func(g cell.Grant) bool { return g.Path == ownersTree }) {
		return grants, nil
	}
	f, err := sys.OpenChild(grants[holder].Object, "local", sys.PathOnly|sys.Directory)
	if err != nil {
		return grants, nil // there is none, or a link, which leads to what is granted or nowhere
	}
	return append(slices.Clip(grants), cell.Grant{Path: ownersTree, Dir: true, Object: f}), []*os.File{f}
}
