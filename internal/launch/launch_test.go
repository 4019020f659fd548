package launch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"skep.dev/skep/internal/place"
	"skep.dev/skep/internal/sys"
)

// TestMain lets the test program stand for skepd, under that name.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "skepd" {
		if err := fakeDaemon(); err != nil {
			fmt.Fprintln(os.Stderr, "fake skepd:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// fakeDaemon notes that it was started, listens, and ends when its run directory goes.
func fakeDaemon() error {
	run := ""
	for i, a := range os.Args {
		if a == "--run" {
			run = os.Args[i+1]
		}
	}
	if _, err := os.Stat(filepath.Join(run, "fail")); err == nil {
		return errors.New("told to fail")
	}
	starts, err := os.OpenFile(filepath.Join(run, "starts"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	fmt.Fprintf(starts, "%d %s %d\n", os.Getpid(), strings.Join(os.Environ(), ","), sessionOf())
	_ = starts.Close()
	l, err := sys.ListenUnix(filepath.Join(run, "api.sock"), sys.Stream)
	if err != nil {
		return err
	}
	defer l.Close()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); {
		if _, err := os.Stat(filepath.Join(run, "api.sock")); err != nil {
			return nil
		}
		_ = l.SetDeadline(time.Now().Add(50 * time.Millisecond))
		if f, err := sys.AcceptUnix(l); err == nil {
			_ = f.Close()
		}
	}
	return nil
}

// sessionOf is the session that the process belongs to (proc_pid_stat(5)).
func sessionOf() int {
	raw, _ := os.ReadFile("/proc/self/stat")
	_, rest, _ := strings.Cut(string(raw), ") ")
	var state string
	var parent, group, session int
	_, _ = fmt.Sscan(rest, &state, &parent, &group, &session)
	return session
}

func config(t *testing.T) Config {
	t.Helper()
	dir, err := os.MkdirTemp("", "skep-launch")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	programs := filepath.Join(dir, "bin")
	if err := os.Mkdir(programs, 0o755); err != nil {
		t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(exe, filepath.Join(programs, "skepd")); err != nil {
		t.Fatal(err)
	}
	p, err := place.Find(place.Input{StateFlag: filepath.Join(dir, "s"), RunFlag: filepath.Join(dir, "r"), UID: os.Getuid(), Home: dir})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Ensure(); err != nil {
		t.Skipf("the temporary directory is no place for Skep: %v", err)
	}
	// Also as root the fake daemon is a child of the test's own user: what differs
	// for root is the account, which the system-user tests hold.
	uid := os.Getuid()
	if uid == 0 {
		uid = 1
	}
	return Config{Places: p, Programs: programs, UID: uid}
}

func starts(t *testing.T, c Config) []string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(c.Places.Run, "starts"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(raw)), "\n")
}

func TestOneDaemonForTwentyCallers(t *testing.T) {
	t.Setenv("SKEP_CANARY", "leak")
	c := config(t)
	var wait sync.WaitGroup
	errs := make(chan error, 20)
	for range 20 {
		wait.Go(func() { errs <- Ensure(context.Background(), c) })
	}
	wait.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			t.Error(err)
		}
	}
	got := starts(t, c)
	if len(got) != 1 {
		t.Fatalf("%d daemons were started", len(got))
	}
	if strings.Contains(got[0], "leak") {
		t.Error("the daemon inherited the caller's environment")
	}
	var pid, session int
	var env string
	if _, err := fmt.Sscan(got[0], &pid, &env, &session); err != nil || session != pid {
		t.Errorf("the daemon %d is in session %d: %v", pid, session, err)
	}
	if err := Ensure(context.Background(), c); err != nil || len(starts(t, c)) != 1 {
		t.Errorf("a later caller started another: %v", err)
	}
}

func TestDeadSocketIsNoDaemon(t *testing.T) {
	c := config(t)
	l, err := sys.ListenUnix(APISocket(c.Places), sys.Stream)
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	if answers(c.Places) {
		t.Error("a socket that nobody listens on answers")
	}
}

func TestFailedStartSaysWhy(t *testing.T) {
	c := config(t)
	if err := os.WriteFile(filepath.Join(c.Places.Run, "fail"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	err := Ensure(context.Background(), c)
	if err == nil || !strings.Contains(err.Error(), "told to fail") {
		t.Errorf("got %v", err)
	}
}

func TestPlantedLinksAreNotFollowed(t *testing.T) {
	dir := t.TempDir()
	secret := filepath.Join(dir, "secret")
	if err := os.WriteFile(secret, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	soft, hard := filepath.Join(dir, "soft"), filepath.Join(dir, "hard")
	if err := errors.Join(os.Symlink(secret, soft), os.Link(secret, hard)); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{soft, hard, secret} { // secret has two names now
		if f, err := openOwn(path, 0); err == nil {
			_ = f.Close()
			t.Errorf("%s was opened", path)
		}
	}
	f, err := openOwn(filepath.Join(dir, "own"), 0)
	if err != nil {
		t.Fatal(err)
	}
	_ = f.Close()
}

func TestSystemUser(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		p := filepath.Join(dir, name)
		if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return p
	}
	passwd := file("passwd", "root:x:0:0::/root:/bin/sh\nskep:x:990:991::/nonexistent:/usr/sbin/nologin\n")
	ids := file("ids", "other:1:2\nskep:200000:65536\n")
	none := file("none", "other:1:2\n")
	if a, err := systemUser(passwd, ids, ids); err != nil || a.uid != 990 || a.gid != 991 {
		t.Errorf("got %v, %v", a, err)
	}
	for name, c := range map[string][3]string{
		"no user":      {none, ids, ids},
		"no uids":      {passwd, none, ids},
		"no gids":      {passwd, ids, none},
		"no file":      {passwd, filepath.Join(dir, "absent"), ids},
		"user is root": {file("rooted", "skep:x:0:0::/:/bin/sh\n"), ids, ids},
	} {
		_, err := systemUser(c[0], c[1], c[2])
		var missing *ErrNoUser
		if !errors.As(err, &missing) || !strings.Contains(err.Error(), "useradd --system") || !strings.Contains(err.Error(), "usermod --add-subuids 200000-265535 --add-subgids 200000-265535 skep") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Root's skepd is another user: a directory that is closed to it is named before
// anything is made below it.
func TestClosedWayIsNamed(t *testing.T) {
	closed := filepath.Join(t.TempDir(), "closed")
	if err := os.Mkdir(closed, 0o700); err != nil {
		t.Fatal(err)
	}
	a := &account{uid: uint32(os.Getuid()) + 1, gid: uint32(os.Getgid()) + 1}
	state := filepath.Join(closed, "a", "state")
	if err := a.passes(state); err == nil || !strings.Contains(err.Error(), "cannot pass "+closed+" on the way to "+state) {
		t.Errorf("got %v", err)
	}
	if entries, err := os.ReadDir(closed); err != nil || len(entries) != 0 {
		t.Errorf("left %v, %v", entries, err)
	}
	if err := a.passes("/tmp/state"); err != nil {
		t.Error(err)
	}
}
