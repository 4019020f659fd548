package proto

import (
	"errors"
	"fmt"
	"path"
	"strings"
)

// Check judges a request by itself and by the number of descriptors that came
// with it. The worker calls it before it does anything.
func (r *Request) Check(descriptors int) error {
	set := 0
	for _, is := range []bool{r.Prepare != nil, r.Build != nil, r.Box != nil, r.Layer != nil, r.Keys != nil, r.Close != nil, r.Count != nil, r.Unseen != nil, r.Probe != nil, r.Replace != nil} {
		if is {
			set++
		}
	}
	if set != 1 {
		return fmt.Errorf("a request is one of prepare, build, box, layer, keys, close, count, unseen, probe, replace; this has %d of them", set)
	}
	want := 0
	switch {
	case r.Build != nil:
		return r.Build.check(descriptors)
	case r.Box != nil:
		want = 3
		if r.Box.Model {
			want = 4
		}
	case r.Keys != nil:
		want = 3
	case r.Layer != nil:
		for _, g := range r.Layer.Grants {
			if len(g.Files) > 0 && !g.Own || g.Own && g.Plain {
				return errors.New("a grant of a layer is of two kinds")
			}
		}
		want = r.Layer.Descriptors()
	case r.Close != nil:
		if err := checkID(r.Close.Cell); err != nil {
			return err
		}
	case r.Unseen != nil:
		want = 2
	case r.Count != nil:
		if err := checkID(r.Count.Cell); err != nil {
			return err
		}
	}
	if descriptors != want {
		return fmt.Errorf("%d descriptors came where %d belong", descriptors, want)
	}
	return nil
}

func (b *Build) check(descriptors int) error {
	if err := checkID(b.Cell); err != nil {
		return err
	}
	if len(b.Argv) == 0 || len(b.Argv) > MaxArgs || len(b.Env) > MaxArgs || len(b.Steps) > MaxSteps {
		return errors.New("arguments, environment or steps are missing or too many")
	}
	for _, s := range append(append([]string{b.Hostname, b.Dir}, b.Argv...), b.Env...) {
		if strings.ContainsRune(s, 0) {
			return errors.New("a string holds a zero byte")
		}
	}
	if !clean(b.Dir) {
		return fmt.Errorf("working directory %q is no clean absolute path", b.Dir)
	}
	if b.Limits.Memory < 0 || b.Limits.Pids < 0 || b.Limits.MilliCPU < 0 {
		return errors.New("a limit is negative")
	}
	fixed := 4
	if b.Stdio {
		fixed++
	}
	if descriptors < fixed {
		return fmt.Errorf("%d descriptors came where at least %d belong", descriptors, fixed)
	}
	used := 0
	for i, s := range b.Steps {
		n, err := s.check(descriptors - fixed)
		if err != nil {
			return fmt.Errorf("step %d (%s %s): %w", i+1, s.Op, s.Path, err)
		}
		used = max(used, n)
	}
	if used != descriptors-fixed {
		return fmt.Errorf("%d descriptors came for steps that use %d", descriptors-fixed, used)
	}
	return nil
}

// check returns how many of the step descriptors must be there for it.
func (s *Step) check(have int) (int, error) {
	if !clean(s.Path) || s.Path == "/" || strings.ContainsRune(s.Path+s.Target, 0) {
		return 0, errors.New("not a clean absolute path below the root")
	}
	if s.Path == "/dev" || s.Path == "/proc" || (strings.HasPrefix(s.Path, "/proc/") && s.Op != OpCover) {
		return 0, errors.New("that place is the worker's")
	}
	need := 0
	switch s.Op {
	case OpBind:
		need = s.FD + 1
	case OpOverlay:
		need = s.FD + 2
		if s.ReadOnly || s.Own {
			need--
		}
		if s.ReadOnly && s.Own {
			return 0, errors.New("a base of its own that nobody may write")
		}
	case OpSymlink:
		if s.Target == "" {
			return 0, errors.New("a link without a target")
		}
	case OpCover:
		if !clean(s.Target) {
			return 0, errors.New("the covering file is no clean absolute path")
		}
	case OpDir, OpFile, OpTmpfs, OpHide, OpSelf:
	default:
		return 0, errors.New("unknown operation")
	}
	if s.Own && need == 0 {
		if (s.Op != OpDir && s.Op != OpFile && s.Op != OpSymlink) || !strings.HasPrefix(s.Path, "/lower/") {
			return 0, errors.New("it makes nothing in the base of a layer")
		}
		need = s.FD + 1
	}
	if s.FD < 0 || need > have {
		return 0, fmt.Errorf("descriptor %d did not come", s.FD)
	}
	if s.Mode&^0o1777 != 0 {
		return 0, fmt.Errorf("mode %#o has more than permissions", s.Mode)
	}
	return need, nil
}

func clean(p string) bool { return strings.HasPrefix(p, "/") && path.Clean(p) == p }

// checkID accepts 26 characters of lower-case base32 (L19a): the id becomes the name of a cgroup.
func checkID(id string) error {
	if len(id) != 26 || strings.Trim(id, "abcdefghijklmnopqrstuvwxyz234567") != "" {
		return fmt.Errorf("%q is no cell id", id)
	}
	return nil
}
