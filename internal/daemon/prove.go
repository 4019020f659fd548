package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/internal/cell"
	"skep.dev/skep/internal/cell/prove"
	"skep.dev/skep/internal/daemon/cells"
	"skep.dev/skep/internal/daemon/doctor"
	"skep.dev/skep/internal/daemon/furniture"
	"skep.dev/skep/internal/daemon/outputlog"
	"skep.dev/skep/internal/daemon/selftest"
	"skep.dev/skep/internal/ledger"
	"skep.dev/skep/internal/ledger/kind"
	"skep.dev/skep/internal/profile"
	"skep.dev/skep/internal/sys"
)

// Walls knows whether this host's walls are proved (L10); run makes the proof.
type Walls interface {
	Held(ctx context.Context, run selftest.Runner) (p selftest.Proof, fresh bool, err error)
}

const (
	proofDir = "selftest" // in STATE, while a proof runs
	// proofPids bounds the proving program, which is one process of some threads.
	proofPids = 64
)

// proved returns the proof of the walls, without which no cell is built. The first
// call after an upgrade runs a cell of its own, which is no user's: it has no
// record, and only its outcome is in the ledger.
func (d *Daemon) proved() (selftest.Proof, error) {
	if d.Walls == nil {
		return selftest.Proof{}, errors.New("the walls of this host are not proved, and this skepd has no self-test")
	}
	d.mu.Lock()
	if d.ctx.Err() != nil {
		d.mu.Unlock()
		return selftest.Proof{}, errors.New("skepd is ending: try again")
	}
	d.work.Add(1)
	d.mu.Unlock()
	defer d.work.Done()
	ctx, cancel := context.WithTimeout(d.ctx, buildTime)
	defer cancel()
	p, fresh, err := d.Walls.Held(ctx, d.runProof)
	if fresh {
		text := "self-test: every wall holds: " + strings.Join(p.Walls, ", ")
		if err != nil {
			text = "self-test: " + err.Error()
		}
		err = errors.Join(err, d.record(ledger.HostCell, &kind.Note{By: "skepd", Text: kind.Bytes(text)}), d.ledger.EndCell(ledger.HostCell))
	}
	if err != nil {
		return selftest.Proof{}, fmt.Errorf("no cell is started: the walls of this host are not proved: %w (skep doctor)", err)
	}
	return p, nil
}

// runProof runs the proving program in a cell that is built as every other is, and
// returns what it wrote.
func (d *Daemon) runProof(ctx context.Context) (output string, err error) {
	dir := filepath.Join(d.State, proofDir)
	if err := os.RemoveAll(dir); err != nil {
		return "", fmt.Errorf("prepare the self-test: %w", err)
	}
	b, err := d.boxes.Take(ctx)
	if err != nil {
		return "", err
	}
	defer b.Kill()
	d.boxes.Fill() // for the cell that waits
	policy, err := d.policy(&profile.Profile{})
	if err != nil {
		return "", err
	}
	spec, err := d.proofSpec(dir, b.Process.Pid())
	defer func() {
		closeSpec(spec)
		for _, g := range spec.Grants {
			_ = g.Object.Close()
		}
		d.clear(spec.ID)
		err = errors.Join(err, os.RemoveAll(dir))
	}()
	if err != nil {
		return "", err
	}
	spec.Box = b.Warden
	b.Link.Assign(&skepv1.Assignment{
		Cell: spec.ID, Generation: 1, Policy: policy, Resolver: d.names.Current(), Limits: &skepv1.BoxLimits{},
	}, unrecorded{})
	r, err := d.startBehind(ctx, b, spec)
	if err != nil {
		return "", err
	}
	select {
	case <-r.Done():
	case <-ctx.Done():
		_ = r.Kill()
		<-r.Done()
		return "", fmt.Errorf("wait for the self-test: %w", ctx.Err())
	}
	if result := r.Result(); result.ExitCode != 0 {
		return "", errors.Join(fmt.Errorf("the proving program ended with status %d", result.ExitCode), result.Failed)
	}
	var said strings.Builder
	_, err = outputlog.Read(spec.Log, 0, func(data []byte, _ uint64) error {
		said.Write(data)
		return nil
	})
	return said.String(), err
}

// proofSpec is a cell with nothing but the proving program. hostPid is a process
// that it must not see. The caller closes what is in it, also with an error.
func (d *Daemon) proofSpec(dir string, hostPid int) (s *cell.Spec, err error) {
	s = &cell.Spec{
		ID: cells.NewID(), Hostname: "selftest", Argv: []string{prove.Program, "prove", strconv.Itoa(hostPid)}, Dir: "/",
		Env: furniture.Environment(nil, nil), HomePath: homePath, ShmSize: shmSize, Limits: cell.Limits{Pids: proofPids},
		Narrow: []cell.Narrow{{Path: prove.Dir, Kind: cell.Hidden}},
	}
	if s.Home, err = makeDir(filepath.Join(dir, "home")); err != nil {
		return s, err
	}
	if s.Tmp, err = makeDir(filepath.Join(dir, "tmp")); err != nil {
		return s, err
	}
	if s.Log, err = os.OpenFile(filepath.Join(dir, "log"), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600); err != nil {
		return s, fmt.Errorf("make the log of the self-test: %w", err)
	}
	program, err := executable(d.Prover, filepath.Join(dir, "program"))
	if err != nil {
		return s, err
	}
	s.Grants = []cell.Grant{{Path: prove.Program, Object: program}}
	return s, d.openControl(s)
}

// executable opens a program that an agent may execute: the file itself or, where it
// is closed to others as an installed worker is, a copy.
func executable(program, copied string) (*os.File, error) {
	const byOthers = 0o005
	info, err := os.Stat(program)
	if err != nil {
		return nil, fmt.Errorf("find the proving program: %w", err)
	}
	if info.Mode()&byOthers == byOthers {
		return sys.OpenPath(program)
	}
	raw, err := os.ReadFile(program)
	if err != nil {
		return nil, fmt.Errorf("copy the proving program: %w", err)
	}
	if err := os.WriteFile(copied, raw, 0o755); err != nil {
		return nil, fmt.Errorf("copy the proving program: %w", err)
	}
	return sys.OpenPath(copied)
}

// unrecorded takes what a box tells of the proving program's one refused connect.
type unrecorded struct{}

// RecordFlows implements boxlink.Recorder.
func (unrecorded) RecordFlows(context.Context, string, []*skepv1.FlowRecord) error { return nil }

// wallFindings are the self-test's lines of `skep doctor`.
func (d *Daemon) wallFindings() []doctor.Finding {
	p, err := d.proved()
	if err != nil {
		return []doctor.Finding{{
			Name: "self-test", Status: doctor.Missing, Detail: err.Error(),
			Fix: "this kernel or another security module answers otherwise: report it with the line above",
		}}
	}
	out := []doctor.Finding{{
		Name: "self-test", Status: doctor.OK, Detail: "proved " + p.At.Format(time.RFC3339) + " on Linux " + p.Kernel,
	}}
	for _, w := range prove.Walls() {
		out = append(out, doctor.Finding{Name: "wall: " + w.Name, Status: doctor.OK, Detail: w.Did + ": " + w.Want})
	}
	return out
}
