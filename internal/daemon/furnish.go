package daemon

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"skep.dev/skep/internal/cell"
	"skep.dev/skep/internal/daemon/cells"
	"skep.dev/skep/internal/daemon/furniture"
	"skep.dev/skep/internal/daemon/reading"
	"skep.dev/skep/internal/daemon/terms"
	"skep.dev/skep/internal/handover"
	"skep.dev/skep/internal/profile/pathplan"
	"skep.dev/skep/internal/sys"
)

const homePath = furniture.Home

// shmSize bounds /dev/shm of a cell, in bytes.
const shmSize = 64 << 20

// grantsOf numbers the layers of writable grants, in the order of the plan. Single
// files of one directory have one layer: they stand in one place in the cell.
func grantsOf(a *application) []cells.Grant {
	var out []cells.Grant
	layers := 0
	places := map[string]int{}
	for _, m := range a.plan.Mounts {
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

func (d *Daemon) layerDir(id string, parts ...string) string {
	return filepath.Join(append([]string{d.cells.Dir(id), "layer"}, parts...)...)
}

func (d *Daemon) runDir(id string) string { return filepath.Join(d.Run, "cells", id) }

// furnish makes the cell's own directories and says what the driver is to build.
// The caller closes what is in it, also with an error.
func (d *Daemon) furnish(l *life, a *application) (*cell.Spec, error) {
	q := a.request
	s := &cell.Spec{
		ID: l.id, Hostname: furniture.Hostname(l.id, q.Name), Argv: q.Argv, Dir: a.dir,
		Env: furniture.Environment(q.Env, a.profile.Env.Set), HomePath: homePath, ShmSize: shmSize,
		Limits: terms.Limits(a.profile, a.unenforced),
	}
	if q.Terminal != nil {
		s.Terminal = &cell.Size{Rows: uint16(q.Terminal.Rows), Columns: uint16(q.Terminal.Columns)}
	}
	s.Files = furniture.Files(s.Hostname, d.feature.AgentID, d.feature.GroupID, furniture.Zone())
	for _, link := range a.plan.Links {
		s.Links = append(s.Links, cell.Link{Path: link.Path, Target: link.Target})
	}
	s.Stdio = a.bundle.Take(handover.RoleStdio, "")
	for _, step := range []func() error{
		func() error { return d.openOwn(s, a.profile.Home) },
		func() error { return d.openGrants(l, s, a) },
		func() error { return d.openControl(s) },
	} {
		if err := step(); err != nil {
			return s, err
		}
	}
	return s, nil
}

// openOwn makes home, /tmp and the log. A home with a name is kept across cells.
func (d *Daemon) openOwn(s *cell.Spec, kept string) (err error) {
	home := d.layerDir(s.ID, "home")
	if kept != "" {
		home = filepath.Join(d.State, "homes", kept)
	}
	if s.Home, err = furniture.MakeDir(home); err != nil {
		return err
	}
	if s.Tmp, err = furniture.MakeDir(d.layerDir(s.ID, "tmp")); err != nil {
		return err
	}
	if s.Size, err = furniture.MakeDir(d.layerDir(s.ID, "size")); err != nil {
		return err
	}
	s.Log, err = os.OpenFile(filepath.Join(d.cells.Dir(s.ID), reading.LogFile), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("make the log of the cell: %w", err)
	}
	return nil
}

// openGrants gives each grant its object, and a writable one its layer.
func (d *Daemon) openGrants(l *life, s *cell.Spec, a *application) error {
	records := grantsOf(a)
	for _, m := range a.plan.Mounts {
		if m.Kind != pathplan.Grant {
			s.Narrow = append(s.Narrow, cell.Narrow{Path: m.Path, Kind: narrowing(m.Kind)})
			continue
		}
		g := cell.Grant{Path: m.Path, Dir: m.Dir, Writable: m.Writable, Object: a.bundle.Take(handover.RolePath, m.Path)}
		if g.Object == nil {
			return fmt.Errorf("no descriptor came for %s", m.Path)
		}
		l.held = append(l.held, g.Object)
		if m.Writable {
			layer, err := furniture.MakeLayer(d.ctx, d.layerDir(s.ID, strconv.Itoa(records[len(s.Grants)].Layer)), filepath.Base(m.Path), g.Object)
			if err != nil {
				return err
			}
			g.Layer = layer
		}
		s.Grants = append(s.Grants, g)
	}
	return nil
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

// openControl makes the warden's socket, where a later daemon finds it (L20a).
func (d *Daemon) openControl(s *cell.Spec) (err error) {
	if err := os.MkdirAll(d.runDir(s.ID), 0o700); err != nil {
		return fmt.Errorf("make run directory of the cell: %w", err)
	}
	s.Control, err = sys.ListenUnix(filepath.Join(d.runDir(s.ID), "w"), sys.Seqpacket)
	return err
}

func (d *Daemon) removeRun(id string) {
	if err := os.RemoveAll(d.runDir(id)); err != nil {
		d.Log.Warn("run directory of a cell is left", "cell", id, "err", err)
	}
}
