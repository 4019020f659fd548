package rig

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"

	"skep.dev/skep/internal/cell/native"
	"skep.dev/skep/internal/launch/cgroups"
	"skep.dev/skep/internal/ledger"
	"skep.dev/skep/internal/sys"
)

// Rig is one worker with all that cells need.
type Rig struct {
	Dir    string
	Driver *native.Driver
	Ledger *ledger.Ledger

	worker *exec.Cmd
	owner  int // of the layers' files on the disk, -1: this user
	group  int

	spare chan spareBox
}

// Start makes a rig in dir, with the programs of bin. As root it works for the
// system user skep, as skepd does.
func Start(bin, dir string) (_ *Rig, err error) {
	r := &Rig{Dir: dir, owner: -1, spare: make(chan spareBox, 1)}
	defer func() {
		if err != nil {
			_ = r.Close()
		}
	}()
	for _, program := range []string{"skep-worker", "skep-warden", "skep-box"} {
		if _, err := os.Stat(filepath.Join(bin, program)); err != nil {
			return nil, fmt.Errorf("%s is not built: run make build", program)
		}
	}
	if r.Ledger, err = ledger.Open(filepath.Join(dir, "ledger"), ledger.Options{}); err != nil {
		return nil, err
	}
	args := []string{"serve", "--warden", filepath.Join(bin, "skep-warden"), "--box", filepath.Join(bin, "skep-box")}
	if os.Getuid() == 0 {
		account, err := r.account()
		if err != nil {
			return nil, err
		}
		args = append(args, "--user", account)
	}
	ours, theirs, err := sys.SeqpacketPair()
	if err != nil {
		return nil, err
	}
	extra := []*os.File{theirs}
	parents, err := cgroups.Make()
	if err != nil {
		return nil, err
	}
	defer cgroups.Close(parents)
	for _, p := range parents {
		args = append(args, "--cgroup", p.Flag(3+len(extra)))
		extra = append(extra, p.Dir)
	}
	r.worker = exec.Command(filepath.Join(bin, "skep-worker"), args...)
	r.worker.ExtraFiles, r.worker.Stderr = extra, os.Stderr
	err = r.worker.Start()
	_ = theirs.Close()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start the worker: %w", err), ours.Close())
	}
	r.Driver = native.New(ours)
	if _, err := r.Driver.Features(context.Background()); err != nil {
		return nil, err
	}
	return r, r.fill(context.Background())
}

// account finds the user that root's worker works for.
func (r *Rig) account() (string, error) {
	u, err := user.Lookup("skep")
	if err != nil {
		return "", fmt.Errorf("find the system user of Skep, which scripts/system-user makes: %w", err)
	}
	if r.owner, err = strconv.Atoi(u.Uid); err != nil {
		return "", err
	}
	if r.group, err = strconv.Atoi(u.Gid); err != nil {
		return "", err
	}
	return fmt.Sprintf("%s:%d:%d", u.Username, r.owner, r.group), nil
}

// Close ends the worker and the spare box. Cells must have ended.
func (r *Rig) Close() error {
	select {
	case b := <-r.spare:
		b.end()
	default:
	}
	var err error
	if r.Driver != nil {
		err = errors.Join(err, r.Driver.Close(), r.worker.Wait())
	}
	if r.Ledger != nil {
		err = errors.Join(err, r.Ledger.Close())
	}
	return err
}

// Workers are the process numbers of what serves all cells alike.
func (r *Rig) Workers() []int { return []int{r.worker.Process.Pid} }
