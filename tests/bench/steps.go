package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	skepv1 "skep.dev/skep/api/skep/v1"
	api "skep.dev/skep/client"
	"skep.dev/skep/internal/cli/opened"
	"skep.dev/skep/internal/handover"
	"skep.dev/skep/internal/launch"
	"skep.dev/skep/internal/place"
	"skep.dev/skep/internal/profile"
	"skep.dev/skep/internal/profile/pathplan"
	"skep.dev/skep/internal/sys"
	"skep.dev/skep/tests/bench/traffic"
)

// stepped is `skep run` from within this program, which runs already: where the time of
// a run goes, without the start and the end of the command.
type stepped struct {
	places place.Places
	work   string
	steps  [5][]float64 // ms from the beginning
}

// stepNames are what has been done at the end of each step.
func stepNames() [5]string {
	return [5]string{
		"profile read, paths planned and opened", "descriptors handed over", "the start told", "the agent's output closed", "the end told",
	}
}

// turn runs one cell and takes the time of each step; its figure is the last.
func (s *stepped) turn() (float64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	begin := time.Now()
	var took [5]float64
	q, b, err := s.request()
	if err != nil {
		return 0, err
	}
	defer func() { b.Close() }()
	ours, theirs, err := sys.StreamPair()
	if err != nil {
		return 0, err
	}
	defer func() { _ = ours.Close() }()
	b.Add(handover.RoleStdio, "", theirs)
	took[0] = traffic.Milliseconds(time.Since(begin))
	if q.Ticket, err = handover.Offer(launch.HandoverSocket(s.places), b.Roles, b.Files); err != nil {
		return 0, err
	}
	took[1] = traffic.Milliseconds(time.Since(begin))
	b.Close()
	b.Files = nil
	events, err := api.Run(ctx, launch.APISocket(s.places), s.places.State, q)
	if err != nil {
		return 0, err
	}
	defer events.Close()
	if err := await(events, skepv1.CellState_CELL_STATE_RUNNING, skepv1.CellState_CELL_STATE_STOPPED); err != nil {
		return 0, err
	}
	took[2] = traffic.Milliseconds(time.Since(begin))
	if _, err := io.Copy(io.Discard, ours); err != nil {
		return 0, err
	}
	took[3] = traffic.Milliseconds(time.Since(begin))
	if c := events.Msg().Cell; c.State != skepv1.CellState_CELL_STATE_STOPPED {
		if err := await(events, skepv1.CellState_CELL_STATE_STOPPED); err != nil {
			return 0, err
		}
	}
	took[4] = traffic.Milliseconds(time.Since(begin))
	for i, at := range took {
		s.steps[i] = append(s.steps[i], at)
	}
	return took[4], nil
}

// request is that of `skep run -- /bin/true` in the working directory.
func (s *stepped) request() (*skepv1.RunRequest, *opened.Bundle, error) {
	home, err := os.UserHomeDir()
	if err != nil {
		return nil, nil, err
	}
	source, err := profile.ShippedSource(profile.Default)
	if err != nil {
		return nil, nil, err
	}
	p, faults := profile.ParseAt(profile.Default, profile.Place{Dir: s.work, Home: home}, source)
	if faults != nil {
		return nil, nil, faults
	}
	host := &opened.Host{}
	plan, faults := pathplan.Make(pathplan.Input{Profile: p, Homes: []string{home}, Own: s.places.Dirs()}, host)
	if faults != nil {
		return nil, nil, faults
	}
	b := &opened.Bundle{}
	if err := b.Plan(plan, host.Links); err != nil {
		return nil, nil, err
	}
	return &skepv1.RunRequest{
		Profile: source, ProfileName: profile.Default, ProfileDir: s.work, ConfirmedDigest: p.Digest(), ConfirmedHow: "shipped",
		Argv: []string{program}, WorkingDir: s.work, Home: home,
	}, b, nil
}

// await takes events until the cell has one of these states.
func await(events *api.Events, states ...skepv1.CellState) error {
	for events.Receive() {
		c := events.Msg().Cell
		for _, s := range states {
			if c.GetState() == s {
				return nil
			}
		}
		if c.GetState() == skepv1.CellState_CELL_STATE_FAILED {
			return errors.New(c.Cause)
		}
	}
	return fmt.Errorf("the events ended: %w", errors.Join(events.Err(), io.ErrUnexpectedEOF))
}

// rows are the medians, each from the beginning.
func (s *stepped) rows() []Row {
	var rows []Row
	for i, name := range stepNames() {
		row := alone("start, CLI, without its own start, until "+name, "ms", traffic.Quantile(s.steps[i], 0.5), "", nil)
		row.Turns = len(s.steps[i])
		rows = append(rows, row)
	}
	return rows
}
