package daemon

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/internal/daemon/cells"
	"skep.dev/skep/internal/daemon/selftest"
	"skep.dev/skep/internal/ledger"
	"skep.dev/skep/internal/ledger/kind"
	"skep.dev/skep/internal/profile"
)

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
	d.work.Begin()
	d.mu.Unlock()
	defer d.work.End()
	ctx, cancel := context.WithTimeout(d.ctx, buildTime)
	defer cancel()
	p, fresh, err := d.Walls.Held(ctx, d.runProof)
	if fresh {
		err = errors.Join(err, d.record.Append(ledger.HostCell, &kind.Note{By: "skepd", Text: kind.Bytes(p.Told(err))}), d.ledger.EndCell(ledger.HostCell))
	}
	if err != nil {
		return selftest.Proof{}, fmt.Errorf("no cell is started: the walls of this host are not proved: %w (skep doctor)", err)
	}
	return p, nil
}

// runProof runs the proving program in a cell that is built as every other is.
func (d *Daemon) runProof(ctx context.Context) (output string, err error) {
	policy, err := d.policy(&life{profile: &profile.Profile{}})
	if err != nil {
		return "", err
	}
	c := selftest.Cell{
		Dir: filepath.Join(d.State, proofDir), Program: d.Prover, Boxes: d.boxes, Driver: d.Driver, Control: d.house.OpenControl, Clear: d.clear,
		Assignment: &skepv1.Assignment{
			Cell: cells.NewID(), Generation: 1, Policy: policy, Resolver: d.names.Current(), Limits: &skepv1.BoxLimits{},
		},
	}
	return c.Run(ctx)
}
