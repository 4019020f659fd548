// Package admit is what a request to run must pass before anything happens.
//
// Its laws:
//   - Admitting has no effect but that the ticket of the request is used up.
//   - What is admitted holds a descriptor for each path that the cell is to see.
package admit

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"connectrpc.com/connect"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/internal/cell"
	"skep.dev/skep/internal/daemon/cells"
	"skep.dev/skep/internal/daemon/furniture"
	"skep.dev/skep/internal/daemon/keys"
	"skep.dev/skep/internal/daemon/passed"
	"skep.dev/skep/internal/daemon/profiles"
	"skep.dev/skep/internal/daemon/secrets"
	"skep.dev/skep/internal/daemon/terms"
	"skep.dev/skep/internal/handover"
	"skep.dev/skep/internal/profile"
	"skep.dev/skep/internal/profile/pathplan"
	"skep.dev/skep/internal/sshagent"
	"skep.dev/skep/internal/strict"
)

// Application is a request to run that has passed every check and has had no effect.
type Application struct {
	Request    *skepv1.RunRequest
	UID        uint32
	Profile    *profile.Profile
	Plan       *pathplan.Plan
	Bundle     *handover.Bundle
	Unenforced []string
	Dir        string         // working directory in the cell
	Keys       *sshagent.Page // what of the caller's ssh-agent it may use; nil: nothing
	Agent      *os.File       // the connection to it
	Secrets    *secrets.Cell  // nil where the profile has none
	Values     *os.File       // the parcel of their values as they are now
}

// Close gives back what came with it and was not taken.
func (a *Application) Close() {
	a.Bundle.Close()
	if a.Agent != nil {
		_ = a.Agent.Close()
	}
	a.Secrets.Close()
	if a.Values != nil {
		_ = a.Values.Close()
	}
}

// Rules judge requests.
type Rules struct {
	Desk     *handover.Desk
	Profiles profiles.Reader
	Limits   cell.Enforced // that this host can hold
	// Own are the directories of Skep's that no cell may see: this daemon's (L8b).
	Own []string
}

// Admit is the list of what a request must pass. What it returns is the caller's to close.
func (r *Rules) Admit(q *skepv1.RunRequest, uid uint32) (_ *Application, err error) {
	a := &Application{Request: q, UID: uid, Bundle: &handover.Bundle{}}
	defer func() {
		if err != nil {
			a.Close()
		}
	}()
	if q.Ticket != "" {
		if a.Bundle, err = r.Desk.Take(q.Ticket, uid); err != nil {
			a.Bundle = &handover.Bundle{}
			return nil, connect.NewError(connect.CodeFailedPrecondition, err)
		}
	}
	if len(q.Argv) == 0 || q.Argv[0] == "" {
		return nil, invalid(errors.New("no program: skep run -- PROGRAM [ARGUMENTS]"))
	}
	if err := cells.CheckName(q.Name); err != nil {
		return nil, invalid(err)
	}
	if a.Profile, err = r.Profiles.Effective(q); err != nil {
		return nil, invalid(err)
	}
	if digest := a.Profile.Digest(); q.ConfirmedDigest != digest {
		return nil, connect.NewError(connect.CodeFailedPrecondition, fmt.Errorf(
			"the rights of %s were not confirmed: their digest is %s", a.Profile.File, digest))
	}
	if !slices.Contains([]string{"shipped", "prompt", "flag", "before"}, q.ConfirmedHow) {
		return nil, invalid(fmt.Errorf("confirmed_how is %q: shipped, prompt, flag or before", q.ConfirmedHow))
	}
	if q.ConfirmedHow == "shipped" && !profiles.IsShipped(q) {
		return nil, invalid(fmt.Errorf("%s is no profile that Skep ships: it has to be confirmed", q.ProfileName))
	}
	for name := range q.Env {
		if !slices.Contains(a.Profile.Env.Pass, name) {
			return nil, invalid(fmt.Errorf("environment variable %q is not in env.pass of %s", name, a.Profile.File))
		}
	}
	if a.Unenforced, err = terms.Enforceable(a.Profile, r.Limits); err != nil {
		return nil, connect.NewError(connect.CodeFailedPrecondition, err)
	}
	var faults strict.Faults
	a.Plan, faults = pathplan.Make(pathplan.Input{
		Profile: a.Profile, Homes: homes(q.Home), Own: r.own(q.Home), Programs: programs(),
	}, passed.By(a.Bundle))
	if faults != nil {
		return nil, invalid(faults)
	}
	if err := complete(a); err != nil {
		return nil, invalid(err)
	}
	if err := a.keys(); err != nil {
		return nil, invalid(err)
	}
	if a.Secrets, err = secrets.Take(a.Profile.Secrets, a.Bundle); err != nil {
		return nil, invalid(err)
	}
	if a.Secrets != nil {
		if a.Values, err = a.Secrets.Read(); err != nil {
			return nil, connect.NewError(connect.CodeFailedPrecondition, err)
		}
	}
	a.Dir = a.workingDir()
	return a, nil
}

// keys takes the caller's ssh-agent, where the profile grants its use (L15).
func (a *Application) keys() (err error) {
	if !a.Profile.Agent.Granted {
		return nil
	}
	if a.Keys, err = keys.Page(a.Profile, a.Request.HostKeys); err != nil {
		return err
	}
	if a.Agent = a.Bundle.Take(handover.RoleAgent, ""); a.Agent == nil {
		return fmt.Errorf("no connection to an ssh-agent came for agent_socket (line %d of %s)", a.Profile.Line("agent_socket"), a.Profile.File)
	}
	return keys.Check(a.Agent)
}

func homes(home string) []string {
	if home == "" {
		return nil
	}
	return []string{home}
}

// own adds the user's own.
func (r *Rules) own(home string) []string {
	out := slices.Clone(r.Own)
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
func complete(a *Application) error {
	for _, m := range a.Plan.Mounts {
		if m.Kind == pathplan.Grant && !slices.Contains(a.Bundle.Roles, handover.Role{Role: handover.RolePath, Path: m.Path}) {
			return fmt.Errorf("no descriptor came for %s (line %d of %s)", m.Path, m.Line, a.Profile.File)
		}
	}
	return nil
}

// workingDir is the caller's where the cell may look into it, else the home (L8c).
func (a *Application) workingDir() string {
	dir := filepath.Clean(a.Request.WorkingDir)
	if !filepath.IsAbs(dir) || a.Plan.At(dir) == 0 {
		return furniture.Home
	}
	for _, m := range a.Plan.Mounts {
		if m.Kind == pathplan.Grant && m.Dir && (dir == m.Path || strings.HasPrefix(dir, m.Path+"/")) {
			return dir
		}
	}
	return furniture.Home
}

func invalid(err error) error { return connect.NewError(connect.CodeInvalidArgument, err) }
