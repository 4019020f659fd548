package serve

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/landlock-lsm/go-landlock/landlock"

	"skep.dev/skep/internal/snapshot/layer"
	"skep.dev/skep/internal/snapshot/layer/confined"
	"skep.dev/skep/internal/sys"
	"skep.dev/skep/internal/worker/proto"
)

// Layer is the body of `skep-worker layer`: it serves the grants of one request
// on conn, confined, in the user namespace that startLayer made (S12a). Descriptor
// 4 is the first grant's.
func Layer(conn *os.File, args []string) error {
	var request proto.Layer
	if len(args) != 1 {
		return errors.New("usage: skep-worker layer REQUEST, started by skep-worker serve")
	}
	if err := proto.Decode([]byte(args[0]), &request); err != nil {
		return err
	}
	grants := make([]layer.Grant, 0, len(request.Grants))
	next := 4
	take := func(what string) (*os.File, error) {
		next++
		return sys.InheritedPlace(next-1, what)
	}
	for _, g := range request.Grants {
		var l layer.Grant
		var err error
		if g.Own {
			l.Files = map[string]*os.File{}
		}
		for _, name := range g.Files {
			if l.Files[name], err = take("file"); err != nil {
				return err
			}
			// It was opened by whoever granted it, and our ids open nothing more of it.
			if can, err := sys.CanRead(l.Files[name]); err != nil || !can {
				return errors.Join(fmt.Errorf("the granted file %q was not opened for reading", name), err)
			}
		}
		if !g.Plain && !g.Own {
			if l.Base, err = take("base"); err != nil {
				return err
			}
		}
		if l.Dir, err = take("layer"); err != nil {
			return err
		}
		// What is passed may be a bare path descriptor, which cannot be read; our own can.
		if l.Dir, err = sys.OpenChild(l.Dir, ".", sys.ReadOnly|sys.Directory); err != nil {
			return fmt.Errorf("open the layer: %w", err)
		}
		if l.Base != nil {
			if l.Base, err = sys.OpenChild(l.Base, ".", sys.ReadOnly|sys.Directory); err != nil {
				return fmt.Errorf("open the base: %w", err)
			}
		}
		if !g.Plain {
			if l.Upper, err = sys.OpenChild(l.Dir, "upper", sys.ReadOnly|sys.Directory); err != nil {
				return fmt.Errorf("open the layer: %w", err)
			}
		}
		grants = append(grants, l)
	}
	if err := onlyBeneath(grants); err != nil {
		return err
	}
	if err := confined.Confine(); err != nil {
		return err
	}
	return layer.Serve(context.Background(), conn, grants,
		layer.Powers{Walk: request.Walk, Open: request.Open, Remove: request.Remove, Measure: request.Measure})
}

// onlyBeneath leaves the process no file but those of its grants: bases to read,
// layers to read and empty. The system call filter cannot see a path, so this is
// the wall behind the flags of openat2(2).
func onlyBeneath(grants []layer.Grant) error {
	var read, empty []string
	at := func(f *os.File) string { return fmt.Sprintf("/proc/self/fd/%d", f.Fd()) }
	for _, g := range grants {
		if g.Base != nil {
			read = append(read, at(g.Base))
		}
		empty = append(empty, at(g.Dir))
	}
	err := landlock.V2.RestrictPaths(landlock.RODirs(read...), landlock.RWDirs(empty...).WithRefer())
	if err != nil {
		return fmt.Errorf("confine the layer process: %w", err)
	}
	return nil
}
