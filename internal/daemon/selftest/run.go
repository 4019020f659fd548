package selftest

import (
	"context"
	"errors"
	"fmt"
	"os"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/internal/cell"
	"skep.dev/skep/internal/daemon/boxes"
	"skep.dev/skep/internal/daemon/furniture"
)

// Cell is what the proving program runs in: a cell that is built as every other is.
type Cell struct {
	Dir        string // of its own, removed afterwards
	Program    string
	Boxes      *boxes.Pool
	Driver     boxes.Builder
	Assignment *skepv1.Assignment
	// Control makes the warden's socket, and Clear removes what the host keeps of a cell.
	Control func(*cell.Spec) error
	Clear   func(cell string)
}

// Run returns what the program wrote.
func (c Cell) Run(ctx context.Context) (output string, err error) {
	if err := os.RemoveAll(c.Dir); err != nil {
		return "", fmt.Errorf("prepare the self-test: %w", err)
	}
	b, err := c.Boxes.Take(ctx)
	if err != nil {
		return "", err
	}
	defer b.Kill()
	c.Boxes.Fill() // for the cell that waits
	spec, err := Spec(c.Dir, c.Program, c.Assignment.Cell, b.Process.Pid())
	defer func() {
		furniture.Close(spec)
		for _, g := range spec.Grants {
			_ = g.Object.Close()
		}
		c.Clear(spec.ID)
		err = errors.Join(err, os.RemoveAll(c.Dir))
	}()
	if err == nil {
		err = c.Control(spec)
	}
	if err != nil {
		return "", err
	}
	spec.Box = b.Warden
	b.Link.Assign(c.Assignment, unrecorded{})
	r, err := b.Build(ctx, c.Driver, spec)
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
	return Said(spec.Log)
}

// unrecorded takes what a box tells of the proving program's one refused connect.
type unrecorded struct{}

// RecordFlows implements boxlink.Recorder.
func (unrecorded) RecordFlows(context.Context, string, []*skepv1.FlowRecord) ([]*skepv1.RefusedFlow, error) {
	return nil, nil
}

// Lease implements boxlink.Recorder.
func (unrecorded) Lease(string, int64) (int64, error) { return 0, nil }

// Draft implements boxlink.Recorder: the agent of a proof asks nobody.
func (unrecorded) Draft(string, *skepv1.DraftRequest) (string, error) { return "", nil }

// Asked implements boxlink.Recorder.
func (unrecorded) Asked(string, string) string { return "" }

// UseSecret implements boxlink.Recorder.
func (unrecorded) UseSecret(string, *skepv1.UseSecretRequest) error { return nil }
