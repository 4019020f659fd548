package verify

import (
	"fmt"
	"strings"
)

// Status is the verdict of [Ledger] and the exit status of `skep ledger
// verify` (D8).
type Status int

// The statuses. The zero value is valid, so a Report is only to be trusted
// when Ledger has returned it.
const (
	Valid        Status = 0
	CannotRead   Status = 1
	Empty        Status = 10
	UnsignedTail Status = 11
	Truncated    Status = 12
	Altered      Status = 13
	Forked       Status = 14
	WrongKey     Status = 15
	Unknown      Status = 16
)

// String names the status.
func (s Status) String() string {
	switch s {
	case Valid:
		return "valid"
	case Empty:
		return "empty"
	case UnsignedTail:
		return "unsigned tail"
	case Truncated:
		return "truncated"
	case Altered:
		return "altered"
	case Forked:
		return "forked"
	case WrongKey:
		return "wrong key"
	case Unknown:
		return "unknown version"
	}
	return "cannot read"
}

// Fault is the first thing that is wrong.
type Fault struct {
	Status Status
	Cell   string // "" if it concerns the whole record
	Seq    uint64 // of the entry in its cell's chain; 0 if it is no entry
	Seal   uint64 // number of the seal; 0 if it is no seal
	Detail string // a sentence; what came from the files is quoted
}

// Error makes a Fault an error.
func (f *Fault) Error() string {
	var w strings.Builder
	w.WriteString(f.Status.String())
	if f.Cell != "" {
		fmt.Fprintf(&w, ": cell %s", f.Cell)
	}
	if f.Seq > 0 {
		fmt.Fprintf(&w, ", entry %d", f.Seq)
	}
	if f.Seal > 0 {
		fmt.Fprintf(&w, ", seal %d", f.Seal)
	}
	return w.String() + ": " + f.Detail
}

// Report is what [Ledger] found.
type Report struct {
	Status     Status
	Fault      *Fault // nil if there is none
	Entries    uint64
	Cells      uint64
	Seals      uint64
	Unsigned   uint64     // entries that no seal covers yet
	Checkpoint Checkpoint // the last good seal; zero if there is none
	Live       bool       // a daemon holds the ledger open
}

func count(n uint64, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, more)
}

// String is one line for a person.
func (r Report) String() string {
	counts := count(r.Entries, "entry", "entries") + " of " + count(r.Cells, "cell", "cells") + ", " + count(r.Seals, "seal", "seals")
	unsigned := count(r.Unsigned, "entry", "entries") + " not sealed yet"
	switch {
	case r.Status == Valid:
		return "valid up to " + r.Checkpoint.String() + ": " + counts
	case r.Status == UnsignedTail && r.Seals > 0:
		return fmt.Sprintf("valid up to %s, tail unsigned: %s, %s", r.Checkpoint, counts, unsigned)
	case r.Status == UnsignedTail:
		return fmt.Sprintf("nothing is signed: %s, %s", counts, unsigned)
	case r.Fault != nil:
		return r.Fault.Error()
	}
	return r.Status.String() + ": the ledger has no entry"
}
