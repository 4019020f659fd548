package cli

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"time"

	"connectrpc.com/connect"

	"skep.dev/skep/api/skep/v1/skepv1connect"
	"skep.dev/skep/client"
	"skep.dev/skep/internal/cli/merging"
	"skep.dev/skep/internal/launch"
	"skep.dev/skep/internal/place"
	"skep.dev/skep/internal/snapshot/merge"
)

// home is the user's, from the user database: a variable could be a cell's idea.
func home() string {
	if u, err := user.LookupId(strconv.Itoa(os.Getuid())); err == nil && filepath.IsAbs(u.HomeDir) {
		return u.HomeDir
	}
	dir, err := os.UserHomeDir()
	if err != nil {
		return ""
	}
	return dir
}

// places are where the daemon of this user is. Root's works as the system user.
func (a *App) places() (place.Places, error) {
	in := place.Input{StateFlag: a.state, RunFlag: a.run, UID: os.Getuid(), Home: home(), Getenv: a.Getenv}
	if in.UID == 0 {
		in.Packaged = true
		in.Getenv = func(name string) string {
			if name == "XDG_RUNTIME_DIR" || name == "XDG_STATE_HOME" {
				return "" // root's own, closed to the system user
			}
			return a.Getenv(name)
		}
	}
	return place.Find(in)
}

// own is the user's own state directory: confirmations, and the journals of
// merges. Root's is not the daemon's.
func (a *App) own() (string, error) {
	in := place.Input{StateFlag: a.state, UID: os.Getuid(), Home: home(), Getenv: a.Getenv}
	if in.UID == 0 {
		in.StateFlag = ""
		in.Getenv = func(name string) string {
			if name == "SKEP_STATE" {
				return ""
			}
			return a.Getenv(name)
		}
	}
	p, err := place.Find(in)
	if err != nil {
		return "", err
	}
	if err := place.Private(p.State, in.UID); err != nil {
		return "", err
	}
	return p.State, nil
}

// daemon is a connection to skepd, which is started if none answers.
type daemon struct {
	skepv1connect.SkepClient
	places   place.Places
	ensure   func(context.Context) error // returns when one answers
	instance string                      // of the one that was greeted
}

// goesOn tells of an error that ended a stream whether another skepd goes on with it: one
// that took the place of the one that was asked, which may have had no time for a word.
func (d *daemon) goesOn(ctx context.Context, err error) bool {
	if client.IsAgain(err) {
		return true
	}
	if err == nil || !broken(err) {
		return false
	}
	within, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	v, err := client.Negotiate(within, client.New(launch.APISocket(d.places)))
	moved := err == nil && v.Instance != d.instance && v.Fault == ""
	if moved {
		d.instance = v.Instance
	}
	return moved
}

// connection is one that nothing was sent on yet.
func (a *App) connection() (*daemon, error) {
	p, err := a.places()
	if err != nil {
		return nil, err
	}
	programs, err := launch.Programs()
	if err != nil {
		return nil, err
	}
	config := launch.Config{Places: p, Programs: programs, UID: os.Getuid()}
	ensure := func(ctx context.Context) error { return launch.Ensure(ctx, config) }
	return &daemon{SkepClient: client.NewAgain(launch.APISocket(p), ensure), places: p, ensure: ensure}, nil
}

// daemon is one that has agreed on the version.
func (a *App) daemon(ctx context.Context) (*daemon, error) {
	d, err := a.connection()
	if err != nil {
		return nil, err
	}
	late := time.After(endingTime)
	for {
		if err := d.ensure(ctx); err != nil {
			return nil, err
		}
		err := a.greet(ctx, d)
		if err == nil {
			return d, nil
		}
		// One that ended between our look and our call has done nothing for us: there will be another.
		// A reset is told as a cancellation, which is not ours.
		if code := connect.CodeOf(err); ctx.Err() != nil || code != connect.CodeUnavailable && code != connect.CodeCanceled {
			return nil, err
		}
		select {
		case <-late:
			return nil, err
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// answerTime bounds the wait for a skepd that accepts and does not answer.
const answerTime = 10 * time.Second

// greet agrees with skepd on a version of the contract, and on the state directory.
func (a *App) greet(ctx context.Context, d *daemon) error {
	patience := cmp.Or(a.patience, answerTime)
	within, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	v, err := client.Negotiate(within, d)
	if err != nil {
		if within.Err() != nil && ctx.Err() == nil {
			return silent(launch.APISocket(d.places), patience, err)
		}
		return err
	}
	d.instance = v.Instance
	return sameState(d.places, v.State)
}

// silent says who does not answer. A process that was stopped accepts connections: the
// kernel does it in its place.
func silent(socket string, waited time.Duration, err error) error {
	who := "skepd"
	fix := "`kill -CONT` wakes one that was stopped, `kill` ends it; the next command starts another"
	if pid, ok := launch.Listener(socket); ok {
		who = fmt.Sprintf("skepd (process %d)", pid)
		fix = fmt.Sprintf("`kill -CONT %d` wakes it if it was stopped, `kill %d` ends it; the next command starts another", pid, pid)
	}
	return &fixable{fmt.Sprintf("%s did not answer on %s within %s", who, socket, waited), fix, err}
}

// sameState makes sure that the skepd which serves the run-time directory keeps its
// state where this command looks for it.
func sameState(p place.Places, theirs string) error {
	if theirs == "" || theirs == p.State {
		return nil
	}
	ours, err := os.Stat(p.State)
	if other, err2 := os.Stat(theirs); err == nil && err2 == nil && os.SameFile(ours, other) {
		return nil
	}
	return &fixable{
		what: fmt.Sprintf("the skepd that serves %s keeps its state in %s, not in %s", p.Run, theirs, p.State),
		fix:  fmt.Sprintf("use that one (--state %s, or SKEP_STATE), or name another run-time directory for yours (--run, or SKEP_RUN)", theirs),
	}
}

// endingTime is how long the sockets of a skepd that was killed may outlive it.
const endingTime = 2 * time.Second

// ready is the daemon, after an interrupted merge of this user's was finished or
// undone and skepd was told which (S4).
func (a *App) ready(ctx context.Context) (*daemon, error) {
	if err := a.recover(); err != nil {
		return nil, err
	}
	d, err := a.daemon(ctx)
	if err != nil {
		return nil, err
	}
	return d, a.report(ctx, d)
}

// report tells skepd the end of merges whose process died before it could.
func (a *App) report(ctx context.Context, d *daemon) error {
	own, err := a.own()
	if err != nil {
		return err
	}
	merging.Tell(ctx, d, own, d.places.State, a.say)
	return nil
}

// recover finishes or undoes a merge of this user's that was interrupted, before
// anything looks at the tree (S4).
func (a *App) recover() error {
	own, err := a.own()
	if err != nil {
		return err
	}
	done, err := merge.Recover(own)
	for _, r := range done {
		word := "undid"
		if r.Finished {
			word = "finished"
		}
		a.say("%s an interrupted merge of %.12s", word, r.Hash)
	}
	return err
}
