package opened

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"path"
	"strconv"
	"strings"
	"syscall"

	"skep.dev/skep/internal/profile/pathplan"
)

// ClosedError names a directory of a grant that the agent cannot pass.
type ClosedError struct {
	Dir, Target string // what is closed, and what it is on the way to
	Mode        os.FileMode
	Owner       string // whose it is
	Grant       string // the grant that it lies in
	As          string // whom the agent is there, in words
}

// Error says which directory is closed, to whom, and what helps.
func (e *ClosedError) Error() string {
	also := ""
	if e.Owner != "root" {
		also = ", or run skep as " + e.Owner
	}
	return fmt.Sprintf("%s (mode %04o, of %s) is closed to the agent, which is %s in the granted %s, so %s is out of its reach: open the directory (chmod a+rx %[1]s)%[7]s",
		e.Dir, e.Mode.Perm(), e.Owner, e.As, e.Grant, e.Target, also)
}

// Passable looks for a directory that a cell of root's could not pass on the way to its
// working directory or to a mount within a grant, which would be told of the program
// alone. In a writable grant its agent is that grant's owner (L17a); in another one it
// is nobody of the host, and the overlay that shows it has to read directories, too.
// What no grant holds, or is not there, is left to the cell.
func Passable(plan *pathplan.Plan, cwd string) error {
	for _, m := range plan.Mounts {
		if err := way(plan, m.Path, false); err != nil {
			return err
		}
	}
	return way(plan, cwd, true)
}

// way looks at each directory from the grant that holds a target down to it; into says
// that the target itself is entered.
func way(plan *pathplan.Plan, target string, into bool) error {
	in := around(plan, target, into)
	dir := in.Path
	for rel := strings.TrimPrefix(strings.TrimPrefix(target, dir), "/"); dir != ""; {
		if rel == "" && !into {
			return nil
		}
		if closed := closedIn(in, dir); closed != nil {
			closed.Target = target
			return closed
		}
		if rel == "" {
			return nil
		}
		var next string
		next, rel, _ = strings.Cut(rel, "/")
		dir = path.Join(dir, next)
	}
	return nil
}

// around is the granted directory that a path lies in; with itself, or is.
func around(plan *pathplan.Plan, target string, itself bool) (in pathplan.Mount) {
	for _, m := range plan.Mounts {
		below := strings.HasPrefix(target, strings.TrimSuffix(m.Path, "/")+"/") || itself && target == m.Path
		if m.Kind == pathplan.Grant && m.Dir && below && len(m.Path) > len(in.Path) {
			in = m
		}
	}
	return in
}

// closedIn is nil for a directory of a grant that the agent passes.
func closedIn(grant pathplan.Mount, dir string) *ClosedError {
	root, err1 := ownerOf(grant.Path)
	is, err2 := ownerOf(dir)
	if errors.Join(err1, err2) != nil || is.Mode&syscall.S_IFMT != syscall.S_IFDIR {
		return nil
	}
	e := &ClosedError{Dir: dir, Mode: os.FileMode(is.Mode & 0o777), Owner: nameOf(is.Uid), Grant: grant.Path, As: nameOf(root.Uid)}
	open := passes(e.Mode, is.Uid == root.Uid, is.Gid == root.Gid)
	if !grant.Writable {
		e.As, open = "nobody of this host", e.Mode&0o005 == 0o005
	}
	if open {
		return nil
	}
	return e
}

func ownerOf(name string) (st syscall.Stat_t, err error) {
	err = syscall.Stat(name, &st)
	return st, err
}

// passes is the kernel's own choice: of the three classes the first that fits counts.
func passes(mode os.FileMode, owner, group bool) bool {
	switch {
	case owner:
		return mode&0o100 != 0
	case group:
		return mode&0o010 != 0
	}
	return mode&0o001 != 0
}

func nameOf(uid uint32) string {
	id := strconv.FormatUint(uint64(uid), 10)
	if u, err := user.LookupId(id); err == nil {
		return u.Username
	}
	return "uid " + id
}
