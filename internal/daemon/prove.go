package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/internal/daemon/cells"
	"skep.dev/skep/internal/daemon/selftest"
	"skep.dev/skep/internal/ledger"
	"skep.dev/skep/internal/ledger/kind"
	"skep.dev/skep/internal/profile"
)

// Walls knows whether this host's walls are proved (L10); run makes the proof.
type Walls interface {
	Held(ctx context.Context, run selftest.Runner) (p selftest.Proof, fresh bool, err error)
}

// proofDir is in STATE while a proof runs.
const proofDir = "selftest"

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
		err = errors.Join(err, d.record.Append(ledger.HostCell, &kind.Note{By: "skepd", Text: kind.Bytes(text)}), d.ledger.EndCell(ledger.HostCell))
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
	spec, err := selftest.Spec(dir, d.Prover, cells.NewID(), b.Process.Pid())
	defer func() {
		closeSpec(spec)
		for _, g := range spec.Grants {
			_ = g.Object.Close()
		}
		d.clear(spec.ID)
		err = errors.Join(err, os.RemoveAll(dir))
	}()
	if err == nil {
		err = d.house.OpenControl(spec)
	}
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
	return selftest.Said(spec.Log)
}

// unrecorded takes what a box tells of the proving program's one refused connect.
type unrecorded struct{}

// RecordFlows implements boxlink.Recorder.
func (unrecorded) RecordFlows(context.Context, string, []*skepv1.FlowRecord) ([]*skepv1.RefusedFlow, error) {
	return nil, nil
}

// Lease implements boxlink.Recorder.
func (unrecorded) Lease(string, int64) (int64, error) { return 0, nil }
