package daemon

import (
	"os"

	"skep.dev/skep/internal/cell"
	"skep.dev/skep/internal/daemon/admit"
	"skep.dev/skep/internal/daemon/furniture"
	"skep.dev/skep/internal/daemon/keys"
	"skep.dev/skep/internal/daemon/terms"
	"skep.dev/skep/internal/handover"
)

// shmSize bounds /dev/shm of a cell, in bytes.
const shmSize = 64 << 20

// furnish makes the cell's own directories and says what the driver is to build.
// The caller closes what is in it, also with an error.
func (d *Daemon) furnish(l *life, a *admit.Application) (*cell.Spec, error) {
	q := a.Request
	s := &cell.Spec{
		ID: l.id, Hostname: furniture.Hostname(l.id, q.Name), Argv: q.Argv, Dir: a.Dir,
		Env: furniture.Environment(q.Env, a.Profile.Env.Set, l.secrets.Variables(), l.secrets.Git(q.Env, a.Profile.Env.Set)), HomePath: furniture.Home, ShmSize: shmSize,
		Limits: terms.Limits(a.Profile, a.Unenforced),
	}
	if q.Terminal != nil {
		s.Terminal = &cell.Size{Rows: uint16(q.Terminal.Rows), Columns: uint16(q.Terminal.Columns)}
	}
	if a.Keys != nil {
		s.Env = append(s.Env, keys.Variable())
		var err error
		if s.Keys, err = furniture.MakeDir(d.house.Keys(l.id)); err != nil {
			return s, err
		}
	}
	s.Files = furniture.Files(s.Hostname, d.feature.AgentID, d.feature.GroupID, furniture.Zone())
	for _, link := range a.Plan.Links {
		s.Links = append(s.Links, cell.Link{Path: link.Path, Target: link.Target})
	}
	s.Stdio = a.Bundle.Take(handover.RoleStdio, "")
	if err := d.house.OpenOwn(s, a.Profile.Home); err != nil {
		return s, err
	}
	held, err := d.house.OpenGrants(d.ctx, s, a.Plan, func(path string) *os.File { return a.Bundle.Take(handover.RolePath, path) })
	l.held = held
	if err != nil {
		return s, err
	}
	return s, d.house.OpenControl(s)
}

func (d *Daemon) removeRun(id string) {
	if err := os.RemoveAll(d.house.RunDir(id)); err != nil {
		d.Log.Warn("run directory of a cell is left", "cell", id, "err", err)
	}
}
