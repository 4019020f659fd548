package opened

import (
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
	Dir, Target string // what is closed, and what lies below it
	Mode        os.FileMode
	Owner       string // whose it is
	Grant       string // the grant that it lies in
	As          string // whom the agent is there
}

// Error says which directory is closed, to whom, and what helps.
func (e *ClosedError) Error() string {
	return fmt.Sprintf("%s (mode %04o, of %s) is closed to the agent, which is %s in the granted %s, so %s is out of its reach: "+
		"open the directory (chmod a+x %[1]s), run skep as %[3]s, or grant %[6]s without what is above it",
		e.Dir, e.Mode.Perm(), e.Owner, e.As, e.Grant, e.Target)
}

// Passable looks for a directory that a cell of root's could not pass on the way to its
// working directory or to a mount within a grant: in each grant its agent has the rights
// of that grant's owner (L17a), and what fails on the way is told of the program alone.
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
	if in == "" {
		return nil
	}
	root, err := os.Stat(in)
	if err != nil {
		return nil
	}
	dir := in
	for rel := strings.TrimPrefix(strings.TrimPrefix(target, in), "/"); ; {
		if rel == "" && !into {
			return nil
		}
		if closed := closedTo(dir, root); closed != nil {
			closed.Target, closed.Grant = target, in
			return closed
		}
		if rel == "" {
			return nil
		}
		var next string
		next, rel, _ = strings.Cut(rel, "/")
		dir = path.Join(dir, next)
	}
}

// around is the granted directory that a path lies in; with itself, or is.
func around(plan *pathplan.Plan, target string, itself bool) (dir string) {
	for _, m := range plan.Mounts {
		below := strings.HasPrefix(target, strings.TrimSuffix(m.Path, "/")+"/") || itself && target == m.Path
		if m.Kind == pathplan.Grant && m.Dir && below && len(m.Path) > len(dir) {
			dir = m.Path
		}
	}
	return dir
}

// closedTo is nil for a directory that the owner of root may pass.
func closedTo(dir string, root os.FileInfo) *ClosedError {
	info, err := os.Stat(dir)
	if err != nil || !info.IsDir() {
		return nil
	}
	is, ok1 := info.Sys().(*syscall.Stat_t)
	as, ok2 := root.Sys().(*syscall.Stat_t)
	if !ok1 || !ok2 || passes(info.Mode().Perm(), is.Uid == as.Uid, is.Gid == as.Gid) {
		return nil
	}
	return &ClosedError{Dir: dir, Mode: info.Mode(), Owner: nameOf(is.Uid), As: nameOf(as.Uid)}
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
