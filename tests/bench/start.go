package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"skep.dev/skep/tests/bench/rig"
	"skep.dev/skep/tests/bench/traffic"
)

const (
	program = "/bin/true"
	// betweenStarts is the time that a half-built cell has to get ready.
	betweenStarts = 20 * time.Millisecond
)

// measureStart compares the start of /bin/true in a full cell with bubblewrap and
// with a plain exec.
func measureStart(s *settings) ([]Row, error) { return withRig(s, "start", startAlone) }

// measureCrowd compares the start of a late cell with that of the first ones.
func measureCrowd(s *settings) ([]Row, error) { return withRig(s, "crowd", startAmongMany) }

// withRig measures with a rig and one directory to be granted for writing.
func withRig(s *settings, name string, measure func(*settings, *rig.Rig, rig.Request) ([]Row, error)) ([]Row, error) {
	work, err := workDir(s, name)
	if err != nil {
		return nil, err
	}
	r, err := rig.Start(s.bin, filepath.Join(s.dir, name+"-rig"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Close() }()
	return measure(s, r, rig.Request{Argv: []string{program}, Write: []string{work}})
}

func startAlone(s *settings, r *rig.Rig, request rig.Request) ([]Row, error) {
	var exited, pooledExited, synced []float64
	cell := &contender{name: "cell", turn: func() (float64, error) {
		c, exit, err := runCell(r, request)
		if err != nil {
			return 0, err
		}
		exited = append(exited, traffic.Milliseconds(exit-c.Synced))
		synced = append(synced, traffic.Milliseconds(c.Before))
		return traffic.Milliseconds(c.Executed - c.Before), nil
	}}
	pooled := &contender{name: "pooled cell", turn: func() (float64, error) {
		r.Driver.Prepare()
		<-time.After(betweenStarts)
		c, exit, err := runCell(r, request)
		if err != nil {
			return 0, err
		}
		pooledExited = append(pooledExited, traffic.Milliseconds(exit-c.Synced))
		return traffic.Milliseconds(c.Executed - c.Before), nil
	}}
	wrap := command("bwrap", bubblewrap(request.Write[0], program)...)
	plain := command(program)
	if err := alternate(s.rounds(60), cell, pooled, wrap, plain); err != nil {
		return nil, err
	}
	exit, pooledExit := &contender{figures: exited}, &contender{figures: pooledExited}
	rows := []Row{
		beside("start, API, request to execve", "ms", cell.median(), "bwrap, to exit", wrap.median(), "<= 0.5", atMost(0.5)),
		beside("start, API, request to exit", "ms", exit.median(), "bwrap, to exit", wrap.median(), "", nil),
		beside("start, API, request to execve", "ms", cell.median(), "fork and exec", plain.median(), "", nil),
		beside("start, API, pooled, request to execve", "ms", pooled.median(), "fork and exec", plain.median(), "<= 1.0", atMost(1)),
		beside("start, API, pooled, request to exit", "ms", pooledExit.median(), "fork and exec", plain.median(), "+ 2 ms",
			func(float64) bool { return pooledExit.median() <= plain.median()+2 }),
		alone("start, ledger's sync before execve", "ms", traffic.Quantile(synced, 0.5), "", nil),
	}
	for i := range rows {
		rows[i].Turns = len(cell.figures)
		if wrap.skipped != "" && rows[i].Other == "bwrap, to exit" {
			rows[i].Skipped = wrap.skipped
		}
	}
	rows[0].Note = fmt.Sprintf("cold, driver and spare box, p90 %.2f ms", traffic.Quantile(cell.figures, 0.9))
	rows[3].Note = fmt.Sprintf("a half-built cell stands ready, p90 %.2f ms", traffic.Quantile(pooled.figures, 0.9))
	return rows, nil
}

// startAmongMany starts cells beside more and more idle ones.
func startAmongMany(s *settings, r *rig.Rig, request rig.Request) ([]Row, error) {
	crowd := 1000
	if s.quick {
		crowd = 200
	}
	starts := func() (float64, error) {
		c := &contender{name: "cell", turn: func() (float64, error) {
			c, _, err := runCell(r, request)
			if err != nil {
				return 0, err
			}
			return traffic.Milliseconds(c.Executed - c.Before), nil
		}}
		err := alternate(s.rounds(30), c)
		return c.median(), err
	}
	first, err := starts()
	if err != nil {
		return nil, err
	}
	idle, err := idleCells(r, request, crowd)
	defer endAll(idle)
	if err != nil {
		return []Row{{Measure: "start, a late cell against the first", Skipped: fmt.Sprintf("after %d idle cells: %v", len(idle), err)}}, nil
	}
	late, err := starts()
	if err != nil {
		return nil, err
	}
	row := beside(fmt.Sprintf("start, cell %d against the first", crowd+1), "ms", late, "first", first, "< 1.3", func(v float64) bool { return v < 1.3 })
	row.Turns = s.rounds(30)
	return []Row{row}, nil
}

// runCell runs one cell to its end and makes the next spare box.
func runCell(r *rig.Rig, q rig.Request) (*rig.Cell, time.Duration, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	c, err := r.Start(ctx, q)
	if err != nil {
		return nil, 0, err
	}
	exit, err := c.Wait()
	if err != nil {
		return nil, 0, err
	}
	if err := c.End(ctx); err != nil {
		return nil, 0, err
	}
	return c, exit, r.Refill(ctx)
}

func idleCells(r *rig.Rig, q rig.Request, n int) ([]*rig.Cell, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	q.Argv = []string{"/bin/sleep", "3600"}
	var cells []*rig.Cell
	for range n {
		c, err := r.Start(ctx, q)
		if err != nil {
			return cells, err
		}
		cells = append(cells, c)
		if err := r.Refill(ctx); err != nil {
			return cells, err
		}
	}
	return cells, nil
}

func endAll(cells []*rig.Cell) {
	for _, c := range cells {
		_ = c.Running.Kill()
		<-c.Running.Done()
		_ = c.End(context.Background())
	}
}

// command is a contender that runs a program to its end, or is skipped without it.
func command(name string, args ...string) *contender {
	path, err := exec.LookPath(name)
	c := &contender{name: name, turn: func() (float64, error) {
		begin := time.Now()
		out, err := exec.Command(path, args...).CombinedOutput()
		if err != nil {
			return 0, fmt.Errorf("%w: %s", err, out)
		}
		return traffic.Milliseconds(time.Since(begin)), nil
	}}
	if err != nil {
		c.skipped = err.Error()
	}
	return c
}

// bubblewrap are the arguments for the same view of the host: every namespace, the
// system read-only, one writable directory.
func bubblewrap(work string, argv ...string) []string {
	args := []string{"--unshare-all", "--die-with-parent", "--new-session", "--clearenv", "--setenv", "PATH", "/usr/local/bin:/usr/bin:/bin"}
	for _, p := range []string{"/usr", "/bin", "/lib", "/lib64"} {
		args = append(args, "--ro-bind", p, p)
	}
	args = append(args, "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--tmpfs", "/home/agent", "--bind", work, work, "--chdir", "/")
	return append(append(args, "--"), argv...)
}

// workDir is a directory to be granted for writing.
func workDir(s *settings, name string) (string, error) {
	at := filepath.Join(s.dir, name)
	if err := os.MkdirAll(at, 0o755); err != nil {
		return "", err
	}
	return at, nil
}
