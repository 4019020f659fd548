// Package launch finds a running skepd, or starts one.
//
// Its laws:
//   - One daemon for one place: callers take a lock before they start, and look
//     again once they have it.
//   - A started daemon outlives the terminal: it has a session of its own and,
//     where a user manager answers within a second, a scope (L13).
//   - Root starts two programs and keeps nothing: skepd as the system user, and
//     skep-worker with three capabilities that it can never exceed (L6c).
package launch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"skep.dev/skep/internal/place"
	"skep.dev/skep/internal/sys"
)

// startTime bounds the time from the start of a daemon to its first answer.
const startTime = 15 * time.Second

// Config says where the daemon is and what it is made of.
type Config struct {
	Places   place.Places
	Programs string // directory of skepd, skep-worker and the others
	UID      int    // of the caller
}

// SystemUser is whom skepd runs as where root starts it.
const SystemUser = "skep"

// ErrNoUser tells root what is missing, with the commands that help (L6c).
type ErrNoUser struct{ Missing string }

// Error names the two commands.
func (e *ErrNoUser) Error() string {
	return fmt.Sprintf(`%s; agents never run as root. Run these two commands, then try again:
  useradd --system --user-group --home-dir /nonexistent --no-create-home --shell /usr/sbin/nologin %s
  usermod --add-subuids 200000-265535 --add-subgids 200000-265535 %s`, e.Missing, SystemUser, SystemUser)
}

// APISocket is where the daemon of a place answers.
func APISocket(p place.Places) string { return filepath.Join(p.Run, "api.sock") }

// HandoverSocket is where descriptors are passed to it.
func HandoverSocket(p place.Places) string { return filepath.Join(p.Run, "fd.sock") }

// Ensure returns when a daemon answers, started by us or by anybody.
func Ensure(ctx context.Context, c Config) error {
	if answers(c.Places) {
		return nil
	}
	account, err := c.prepare()
	if err != nil {
		return err
	}
	lock, err := openOwn(filepath.Join(c.Places.Run, "launch.lock"), 0)
	if err != nil {
		return fmt.Errorf("start skepd: %w", err)
	}
	defer func() { _ = lock.Close() }()
	if err := sys.LockExclusive(lock); err != nil {
		return fmt.Errorf("start skepd: %w", err)
	}
	if answers(c.Places) {
		return nil // whoever had the lock before us has started one
	}
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	d, err := c.start(account)
	if err != nil {
		return fmt.Errorf("start skepd: %w", err)
	}
	return d.wait(ctx, c.Places)
}

// answers tells whether somebody accepts on the API socket.
func answers(p place.Places) bool {
	f, err := sys.ConnectUnix(APISocket(p), sys.Stream)
	if err != nil {
		return false
	}
	_ = f.Close()
	return true
}

// Listener is the process that listens on a socket, as the kernel noted it (unix(7)).
func Listener(socket string) (pid int, ok bool) {
	f, err := sys.ConnectUnix(socket, sys.Stream)
	if err != nil {
		return 0, false
	}
	defer func() { _ = f.Close() }()
	pid, err = sys.PeerPID(f)
	return pid, err == nil && pid > 0
}

// wait returns once the daemon answers, or with what it said before it ended.
func (d *started) wait(ctx context.Context, p place.Places) error {
	tick := time.NewTicker(3 * time.Millisecond)
	defer tick.Stop()
	for {
		if answers(p) {
			return nil
		}
		select {
		case <-tick.C:
		case <-d.ended:
			if answers(p) {
				return nil // another one has the place
			}
			return fmt.Errorf("skepd ended at once: %s", d.lastWords())
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("skepd does not answer on %s; its log is %s", APISocket(p), d.log), ctx.Err())
		}
	}
}

// Foreground runs a daemon on this terminal until it is interrupted.
func Foreground(ctx context.Context, c Config) error {
	if answers(c.Places) {
		return fmt.Errorf("a skepd answers on %s already: it ends after ten idle minutes", APISocket(c.Places))
	}
	account, err := c.prepare()
	if err != nil {
		return err
	}
	cmd, err := c.command(account, os.Stderr)
	if err != nil {
		return fmt.Errorf("start skepd: %w", err)
	}
	// Ctrl-C reaches skepd as it does us; it ends its cells, then itself.
	cmd.SysProcAttr.Setsid = false
	interrupted, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start skepd: %w", err)
	}
	sys.CloseAll(cmd.ExtraFiles)
	go func() {
		<-interrupted.Done()
		_ = cmd.Process.Signal(syscall.SIGTERM)
	}()
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("skepd ended: %w", err)
	}
	return nil
}
