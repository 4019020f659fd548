package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"skep.dev/skep/internal/launch"
	"skep.dev/skep/internal/place"
	"skep.dev/skep/tests/bench/traffic"
)

// pause is between the end of one cell and the start of the next, untimed: the
// next spare box is then up, as for a person.
const pause = 200 * time.Millisecond

// measureCLI compares `skep run` with a running daemon, as a person meets it: the
// shipped profile, its limits, the answer after the end is recorded.
func measureCLI(s *settings) ([]Row, error) {
	work, err := workDir(s, "cli")
	if err != nil {
		return nil, err
	}
	skep := filepath.Join(s.bin, "skep")
	if _, err := os.Stat(skep); err != nil {
		return nil, fmt.Errorf("skep is not built: run make build")
	}
	places := []string{"--state", filepath.Join(s.dir, "state"), "--run", filepath.Join(s.dir, "run")}
	daemon := exec.Command(skep, append(places, "up")...)
	daemon.Stderr = os.Stderr
	daemon.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if err := daemon.Start(); err != nil {
		return nil, fmt.Errorf("start the daemon: %w", err)
	}
	defer func() {
		_ = daemon.Process.Signal(syscall.SIGTERM)
		_ = daemon.Wait()
	}()
	at, err := place.Find(place.Input{StateFlag: places[1], RunFlag: places[3], UID: os.Getuid()})
	if err != nil {
		return nil, err
	}
	if err := awaitDaemon(launch.APISocket(at)); err != nil {
		return nil, err
	}
	run := command(skep, append(append([]string(nil), places...), "run", "-q", "-y", "--", program)...)
	run.name = "skep run"
	took := run.turn
	run.turn = func() (float64, error) {
		<-time.After(pause)
		if err := os.Chdir(work); err != nil {
			return 0, err
		}
		return took()
	}
	version := command(skep, "version")
	wrap := command("bwrap", bubblewrap(work, program)...)
	steps := &stepped{work: work, places: at}
	inside := &contender{name: "steps", turn: func() (float64, error) {
		<-time.After(pause)
		return steps.turn()
	}}
	if err := alternate(s.rounds(60), run, wrap, version, inside); err != nil {
		return nil, err
	}
	rows := []Row{
		against("start, CLI, skep run -- /bin/true", "ms", run, wrap, "<= 1.2", atMost(1.2)),
		alone("start, CLI, skep version alone", "ms", version.median(), "", nil),
	}
	rows[0].Note = fmt.Sprintf("coding-agent profile, p90 %.1f ms", traffic.Quantile(run.figures, 0.9))
	return append(rows, steps.rows()...), nil
}

// awaitDaemon returns once the daemon listens. A command would start another.
func awaitDaemon(socket string) error {
	var err error
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); <-time.After(10 * time.Millisecond) {
		var conn net.Conn
		if conn, err = net.Dial("unix", socket); err == nil {
			return conn.Close()
		}
	}
	return fmt.Errorf("wait for the daemon: %w", err)
}
