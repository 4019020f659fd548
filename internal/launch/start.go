package launch

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"skep.dev/skep/internal/launch/cgroups"
	"skep.dev/skep/internal/place"
	"skep.dev/skep/internal/sys"
)

// started is a daemon that we have started.
type started struct {
	log   string
	from  int64 // where its words begin in the log
	ended chan struct{}
}

// start executes skepd in a session of its own.
func (c Config) start(a *account) (*started, error) {
	log, err := c.openLog(a)
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()
	at, err := log.Seek(0, 2)
	if err != nil {
		return nil, err
	}
	cmd, err := c.command(a, log)
	if err != nil {
		return nil, err
	}
	cmd.Args = append(cmd.Args, "--auto")
	defer sys.CloseAll(cmd.ExtraFiles)
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	s := &started{log: log.Name(), from: at, ended: make(chan struct{})}
	go func() {
		_ = cmd.Wait()
		close(s.ended)
	}()
	return s, nil
}

// command is skepd, ready to be started. Its extra files are the caller's to close.
func (c Config) command(a *account, log *os.File) (*exec.Cmd, error) {
	cmd := exec.Command(filepath.Join(c.Programs, "skepd"), "--state", c.Places.State, "--run", c.Places.Run)
	if c.Places.Config != "" {
		cmd.Args = append(cmd.Args, "--config", c.Places.Config)
	}
	cmd.Dir = "/"
	cmd.Env = environment()
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if a == nil {
		return cmd, nil
	}
	conn, err := c.startWorker(a, log)
	if err != nil {
		return nil, err
	}
	cmd.Args = append(cmd.Args, "--worker-fd", "3")
	cmd.ExtraFiles = []*os.File{conn}
	cmd.SysProcAttr.Credential = &syscall.Credential{Uid: a.uid, Gid: a.gid, Groups: []uint32{}}
	return cmd, nil
}

// startWorker starts the capable worker and returns skepd's end of the socket
// between the two. Its bounding set holds three capabilities: whatever it
// executes can have no other (L6c).
func (c Config) startWorker(a *account, log *os.File) (conn *os.File, err error) {
	ours, theirs, err := sys.SeqpacketPair()
	if err != nil {
		return nil, err
	}
	defer func() { _ = theirs.Close() }()
	parents, err := cgroups.Make()
	if err != nil {
		_ = ours.Close()
		return nil, fmt.Errorf("make the parent groups of cells: %w", err)
	}
	defer func() { cgroups.Close(parents) }()
	left, err := cgroups.Left(filepath.Join(c.Places.Run, "cells"), parents)
	if err != nil {
		_ = ours.Close()
		return nil, fmt.Errorf("look for groups of cells that a crash left: %w", err)
	}
	parents = append(parents, left...)
	cmd := exec.Command(filepath.Join(c.Programs, "skep-worker"), WorkerArgs(c.Programs, parents)...)
	cmd.Args = append(cmd.Args, "--user", fmt.Sprintf("%s:%d:%d", SystemUser, a.uid, a.gid))
	cmd.Dir = "/"
	cmd.Env = environment()
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{theirs}
	for _, p := range parents {
		cmd.ExtraFiles = append(cmd.ExtraFiles, p.Dir)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	failed := make(chan error)
	go func() {
		// The thread is bounded for good, so it ends with this goroutine.
		runtime.LockOSThread()
		err := sys.BoundCapabilities(sys.CapSetuid, sys.CapSetgid, sys.CapSysAdmin)
		if err == nil {
			err = cmd.Start()
		}
		failed <- err
	}()
	if err := <-failed; err != nil {
		_ = ours.Close()
		return nil, fmt.Errorf("start skep-worker: %w", err)
	}
	go func() { _ = cmd.Wait() }()
	return ours, nil
}

// WorkerArgs are the arguments of skep-worker; the parents' descriptors follow
// the socket, which is 3.
func WorkerArgs(programs string, parents []cgroups.Parent) []string {
	args := []string{"serve", "--warden", filepath.Join(programs, "skep-warden"), "--box", filepath.Join(programs, "skep-box")}
	for i, p := range parents {
		args = append(args, "--cgroup", p.Flag(4+i))
	}
	return args
}

// environment is all that a daemon inherits: nothing of it reaches a cell, and
// nothing of the user's reaches the daemon.
func environment() []string { return []string{"PATH=/usr/bin:/bin"} }

// openLog opens the daemon's log, which is its user's.
func (c Config) openLog(a *account) (*os.File, error) {
	f, err := openOwn(filepath.Join(c.Places.Run, "skepd.log"), os.O_APPEND)
	if err != nil {
		return nil, err
	}
	if a != nil {
		if err := f.Chown(int(a.uid), int(a.gid)); err != nil {
			_ = f.Close()
			return nil, err
		}
	}
	return f, nil
}

// openOwn opens a file of ours in RUN. Where root works for the system user, the
// directory is that user's: a link that it planted must not become root's deed.
func openOwn(path string, flags int) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW|flags, 0o600)
	if err != nil {
		return nil, err
	}
	st, err := sys.StatFile(f)
	if err == nil && (st.Mode&sys.ModeTypeMask != sys.ModeRegular || st.Nlink != 1) {
		err = fmt.Errorf("%s is a link: remove it", path)
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// lastWords is what the daemon wrote since it was started.
func (d *started) lastWords() string {
	const most = 2000
	f, err := os.Open(d.log)
	if err != nil {
		return "it left no log"
	}
	defer func() { _ = f.Close() }()
	buf := make([]byte, most)
	n, _ := f.ReadAt(buf, d.from)
	words := strings.TrimSpace(string(buf[:n]))
	if words == "" {
		return "it said nothing; its log is " + d.log
	}
	return words
}

// account is the system user and its group.
type account struct{ uid, gid uint32 }

// prepare makes the places. Root makes them for the system user, and so needs one.
func (c Config) prepare() (*account, error) {
	if c.UID != 0 {
		return nil, c.Places.Ensure()
	}
	a, err := systemUser("/etc/passwd", "/etc/subuid", "/etc/subgid")
	if err != nil {
		return nil, err
	}
	for _, dir := range []string{c.Places.State, c.Places.Run} { // before anything is made
		if err := a.passes(dir); err != nil {
			return nil, err
		}
	}
	for _, dir := range []string{c.Places.State, c.Places.Run} {
		if err := a.give(dir); err != nil {
			return nil, fmt.Errorf("give %s to %s: %w", dir, SystemUser, err)
		}
		if err := place.Private(dir, int(a.uid)); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// passes makes sure that the account can come to a directory: what of the way there is
// has to let it through.
func (a *account) passes(dir string) error {
	for at := filepath.Dir(dir); ; at = filepath.Dir(at) {
		info, err := os.Stat(at)
		switch {
		case errors.Is(err, fs.ErrNotExist): // to be made, open to all
		case err != nil:
			return fmt.Errorf("look at the way to %s: %w", dir, err)
		default:
			need := fs.FileMode(0o001)
			if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Uid == a.uid {
				need = 0o100
			} else if ok && st.Gid == a.gid {
				need = 0o010
			}
			if info.Mode()&need == 0 {
				return fmt.Errorf("skepd of root runs as the user %s, which cannot pass %s on the way to %s: `chmod o+x %s`, or name another place (--state and --run, or SKEP_STATE and SKEP_RUN)",
					SystemUser, at, dir, at)
			}
		}
		if at == filepath.Dir(at) {
			return nil
		}
	}
}

// give makes a directory of the account's. One of root's own with nothing in it is
// what another skep is about to give it, or died before it did.
func (a *account) give(dir string) error {
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
			return err
		}
		if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if st, ok := info.Sys().(*syscall.Stat_t); !ok || !info.IsDir() || st.Uid != 0 {
		return nil
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		return err
	}
	return os.Lchown(dir, int(a.uid), int(a.gid))
}

// systemUser finds skepd's user and demands its ranges of ids.
func systemUser(passwd, subuid, subgid string) (*account, error) {
	fields := lineOf(passwd, SystemUser)
	if len(fields) < 4 {
		return nil, &ErrNoUser{"there is no system user " + SystemUser}
	}
	uid, err1 := strconv.ParseUint(fields[2], 10, 32)
	gid, err2 := strconv.ParseUint(fields[3], 10, 32)
	if err1 != nil || err2 != nil || uid == 0 || gid == 0 {
		return nil, &ErrNoUser{"the entry of " + SystemUser + " in " + passwd + " is not that of a system user"}
	}
	for _, file := range []string{subuid, subgid} {
		if len(lineOf(file, SystemUser)) < 3 && len(lineOf(file, fields[2])) < 3 {
			return nil, &ErrNoUser{SystemUser + " has no range of ids in " + file}
		}
	}
	return &account{uint32(uid), uint32(gid)}, nil
}

// lineOf is the first line of a file of colons that begins with a name.
func lineOf(file, name string) []string {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(raw)) {
		if fields := strings.Split(strings.TrimSpace(line), ":"); fields[0] == name {
			return fields
		}
	}
	return nil
}
