package furniture

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"skep.dev/skep/internal/cell"
	"skep.dev/skep/internal/daemon/cells"
	"skep.dev/skep/internal/daemon/reading"
	"skep.dev/skep/internal/profile/pathplan"
	"skep.dev/skep/internal/sys"
)

// House is where cells have their own directories.
type House struct {
	State, Run string
	Cells      *cells.Store
}

// Layer is a cell's layer, or a part of it.
func (h *House) Layer(id string, parts ...string) string {
	return filepath.Join(append([]string{h.Cells.Dir(id), "layer"}, parts...)...)
}

// Keys is the directory of the socket of a cell's ssh-agent.
func (h *House) Keys(id string) string { return h.Layer(id, "keys") }

// RunDir is a cell's directory in RUN.
func (h *House) RunDir(id string) string { return filepath.Join(h.Run, "cells", id) }

// Warden is the socket by which a later daemon finds a cell (L20a).
func (h *House) Warden(id string) string { return filepath.Join(h.RunDir(id), "w") }

// OpenControl makes the warden's socket.
func (h *House) OpenControl(s *cell.Spec) (err error) {
	if err := os.MkdirAll(h.RunDir(s.ID), 0o700); err != nil {
		return fmt.Errorf("make run directory of the cell: %w", err)
	}
	s.Control, err = sys.ListenUnix(h.Warden(s.ID), sys.Seqpacket)
	return err
}

// OpenOwn makes home, /tmp and the log. A home with a name is kept across cells.
func (h *House) OpenOwn(s *cell.Spec, kept string) (err error) {
	home := h.Layer(s.ID, "home")
	if kept != "" {
		home = filepath.Join(h.State, "homes", kept)
	}
	if s.Home, err = MakeDir(home); err != nil {
		return err
	}
	if s.Tmp, err = MakeDir(h.Layer(s.ID, "tmp")); err != nil {
		return err
	}
	if s.Size, err = MakeDir(h.Layer(s.ID, "size")); err != nil {
		return err
	}
	s.Log, err = os.OpenFile(filepath.Join(h.Cells.Dir(s.ID), reading.LogFile), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("make the log of the cell: %w", err)
	}
	return nil
}

// OpenGrants gives each grant of a plan its object, by its path, and a writable one its
// layer. The objects are the caller's.
func (h *House) OpenGrants(ctx context.Context, s *cell.Spec, plan *pathplan.Plan, object func(path string) *os.File) (held []*os.File, err error) {
	records := Grants(plan)
	for _, m := range plan.Mounts {
		if m.Kind != pathplan.Grant {
			s.Narrow = append(s.Narrow, cell.Narrow{Path: m.Path, Kind: narrowing(m.Kind)})
			continue
		}
		g := cell.Grant{Path: m.Path, Dir: m.Dir, Writable: m.Writable, Object: object(m.Path)}
		if g.Object == nil {
			return held, fmt.Errorf("no descriptor came for %s", m.Path)
		}
		held = append(held, g.Object)
		if m.Writable {
			at := h.Layer(s.ID, strconv.Itoa(records[len(s.Grants)].Layer))
			if g.Layer, err = MakeLayer(ctx, at, filepath.Base(m.Path), g.Object); err != nil {
				return held, err
			}
		}
		s.Grants = append(s.Grants, g)
	}
	return held, nil
}

// Grants numbers the layers of writable grants, in the order of the plan. Single
// files of one directory have one layer: they stand in one place in the cell.
func Grants(plan *pathplan.Plan) []cells.Grant {
	var out []cells.Grant
	layers := 0
	places := map[string]int{}
	for _, m := range plan.Mounts {
		if m.Kind != pathplan.Grant {
			continue
		}
		g := cells.Grant{Path: m.Path, Writable: m.Writable, File: !m.Dir, Layer: -1}
		place, known := places[filepath.Dir(m.Path)]
		switch {
		case m.Writable && !m.Dir && known:
			g.Layer = place
		case m.Writable:
			g.Layer = layers
			layers++
		}
		if m.Writable && !m.Dir {
			places[filepath.Dir(m.Path)] = g.Layer
		}
		out = append(out, g)
	}
	return out
}

func narrowing(k pathplan.MountKind) cell.NarrowKind {
	switch k {
	case pathplan.Protect:
		return cell.ReadOnly
	case pathplan.Point:
		return cell.MountPoint
	case pathplan.Hide, pathplan.Grant:
	}
	return cell.Hidden
}

// Close closes the descriptors that the daemon opened for a cell; the driver
// has its own.
func Close(s *cell.Spec) {
	if s == nil {
		return
	}
	for _, f := range []*os.File{s.Home, s.Tmp, s.Size, s.Keys, s.Control, s.Log, s.Stdio} {
		if f != nil {
			_ = f.Close()
		}
	}
	for _, g := range s.Grants {
		if g.Layer != nil {
			_ = g.Layer.Close()
		}
	}
}
