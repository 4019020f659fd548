package daemon

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"connectrpc.com/connect"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/internal/daemon/cells"
	"skep.dev/skep/internal/daemon/passed"
	"skep.dev/skep/internal/daemon/profiles"
	"skep.dev/skep/internal/daemon/terms"
	"skep.dev/skep/internal/handover"
	"skep.dev/skep/internal/profile"
	"skep.dev/skep/internal/profile/pathplan"
	"skep.dev/skep/internal/strict"
)

// application is a request to run that has passed every check and has had no effect.
type application struct {
	request    *skepv1.RunRequest
	uid        uint32
	profile    *profile.Profile
	plan       *pathplan.Plan
	bundle     *handover.Bundle
	unenforced []string
	dir        string // working directory in the cell
}

func (a *application) close() { a.bundle.Close() }

// admit is the list of what a request must pass before anything happens.
func (d *Daemon) admit(q *skepv1.RunRequest, uid uint32) (_ *application, err error) {
	a := &application{request: q, uid: uid, bundle: &handover.Bundle{}}
	defer func() {
		if err != nil {
			a.close()
		}
	}()
	if q.Ticket != "" {
		if a.bundle, err = d.desk.Take(q.Ticket, uid); err != nil {
			a.bundle = &handover.Bundle{}
			return nil, connect.NewError(connect.CodeFailedPrecondition, err)
		}
	}
	if len(q.Argv) == 0 || q.Argv[0] == "" {
		return nil, invalid(errors.New("no program: skep run -- PROGRAM [ARGUMENTS]"))
	}
	if err := cells.CheckName(q.Name); err != nil {
		return nil, invalid(err)
	}
	if a.profile, err = d.profiles.Effective(q); err != nil {
		return nil, invalid(err)
	}
	if digest := a.profile.Digest(); q.ConfirmedDigest != digest {
		return nil, connect.NewError(connect.CodeFailedPrecondition, fmt.Errorf(
			"the rights of %s were not confirmed: their digest is %s", a.profile.File, digest))
	}
	if !slices.Contains([]string{"shipped", "prompt", "flag", "before"}, q.ConfirmedHow) {
		return nil, invalid(fmt.Errorf("confirmed_how is %q: shipped, prompt, flag or before", q.ConfirmedHow))
	}
	if q.ConfirmedHow == "shipped" && !profiles.IsShipped(q) {
		return nil, invalid(fmt.Errorf("%s is no profile that Skep ships: it has to be confirmed", q.ProfileName))
	}
	for name := range q.Env {
		if !slices.Contains(a.profile.Env.Pass, name) {
			return nil, invalid(fmt.Errorf("environment variable %q is not in env.pass of %s", name, a.profile.File))
		}
	}
	if a.unenforced, err = terms.Enforceable(a.profile, d.feature.Limits); err != nil {
		return nil, connect.NewError(connect.CodeFailedPrecondition, err)
	}
	var faults strict.Faults
	a.plan, faults = pathplan.Make(pathplan.Input{
		Profile: a.profile, Homes: homes(q.Home), Own: d.own(q.Home), Programs: programs(),
	}, passed.By(a.bundle))
	if faults != nil {
		return nil, invalid(faults)
	}
	if err := complete(a); err != nil {
		return nil, invalid(err)
	}
	a.dir = a.workingDir()
	return a, nil
}

func homes(home string) []string {
	if home == "" {
		return nil
	}
	return []string{home}
}

// own are the directories of Skep's that no cell may see: this daemon's, and the
// user's own (L8b).
func (d *Daemon) own(home string) []string {
	out := append([]string{d.State, d.Run}, d.Hidden...)
	if home != "" {
		out = append(out, filepath.Join(home, ".local/state/skep"), filepath.Join(home, ".config/skep"))
	}
	return out
}

func programs() []string {
	exe, err := os.Executable()
	if err != nil {
		return nil
	}
	return []string{filepath.Dir(exe)}
}

// complete tells whether a descriptor came for each path that the cell is to see.
func complete(a *application) error {
	for _, m := range a.plan.Mounts {
		if m.Kind == pathplan.Grant && !slices.Contains(a.bundle.Roles, handover.Role{Role: handover.RolePath, Path: m.Path}) {
			return fmt.Errorf("no descriptor came for %s (line %d of %s)", m.Path, m.Line, a.profile.File)
		}
	}
	return nil
}

// workingDir is the caller's where the cell may look into it, else the home (L8c).
func (a *application) workingDir() string {
	dir := filepath.Clean(a.request.WorkingDir)
	if !filepath.IsAbs(dir) || a.plan.At(dir) == 0 {
		return homePath
	}
	for _, m := range a.plan.Mounts {
		if m.Kind == pathplan.Grant && m.Dir && (dir == m.Path || strings.HasPrefix(dir, m.Path+"/")) {
			return dir
		}
	}
	return homePath
}

func invalid(err error) error { return connect.NewError(connect.CodeInvalidArgument, err) }
