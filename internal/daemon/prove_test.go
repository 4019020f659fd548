package daemon

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"skep.dev/skep/internal/daemon/doctor"
	"skep.dev/skep/internal/daemon/selftest"
	"skep.dev/skep/internal/ledger"
)

// Without a proof of the walls nothing is declared, built or kept (L10); the record
// and doctor name the wall.
func TestUnprovedWallsStartNoCell(t *testing.T) {
	l := newLab(t)
	w := &fakeWalls{err: errors.New("Landlock: it let me"), fresh: true}
	l.config.Walls = w
	l.start()
	_, err := l.run(l.request("", "true"))
	if connect.CodeOf(err) != connect.CodeFailedPrecondition || !strings.Contains(err.Error(), "Landlock: it let me") {
		t.Errorf("%v", err)
	}
	if len(l.driver.Started()) != 0 || len(l.daemon.cells.All()) != 0 {
		t.Error("a cell was built")
	}
	if kinds := l.kinds(ledger.HostCell); !slices.Equal(kinds, []string{"note"}) {
		t.Errorf("the chain of the host has %v", kinds)
	}
	if f := selftest.Findings(l.daemon.proved()); len(f) != 1 || f[0].Status != doctor.Missing || !strings.Contains(f[0].Detail, "Landlock") {
		t.Errorf("%+v", f)
	}
	// A zero Config has no proof either.
	l.daemon.Walls = nil
	if _, err := l.run(l.request("", "true")); err == nil {
		t.Error("a daemon without a self-test runs a cell")
	}
}

// A plain driver confines nothing. A proof that is run on it must fail, leave nothing,
// and be no cell of anybody's.
func TestProofRunsAsACellAndLeavesNothing(t *testing.T) {
	l := newLab(t)
	l.config.Prover = filepath.Join(l.dir, "prover")
	if err := os.WriteFile(l.config.Prover, []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	l.start()
	_, err := l.daemon.runProof(t.Context())
	if err == nil || !strings.Contains(err.Error(), "status 127") {
		t.Errorf("%v", err)
	}
	specs := l.driver.Started()
	if len(specs) != 1 || specs[0].Box == nil || specs[0].Control == nil || len(specs[0].Grants) != 1 || specs[0].Grants[0].Writable {
		t.Fatalf("%+v", specs)
	}
	if len(l.daemon.cells.All()) != 0 {
		t.Error("the self-test is a cell that ps lists")
	}
	for _, left := range []string{
		filepath.Join(l.config.State, proofDir), filepath.Join(l.config.Run, "cells", specs[0].ID),
	} {
		if _, err := os.Stat(left); !os.IsNotExist(err) {
			t.Errorf("%s is left", left)
		}
	}
}
