package ending

import (
	"fmt"
	"strings"
	"time"

	"skep.dev/skep/internal/daemon/cells"
	"skep.dev/skep/internal/ledger"
	"skep.dev/skep/internal/ledger/kind"
)

// Entry is the ledger's entry of an end, after the cell lived that long.
func Entry(code int, cause cells.Cause, lived time.Duration) *kind.CellStopped {
	word := cause.Word
	if word == "stop" {
		word = "operator"
	}
	e := &kind.CellStopped{
		Cause: word, Exit: uint8(code & 0xff), Detail: kind.Bytes(cause.Detail), Ms: Millis(lived),
	}
	if cause.Word == "exit" && code > 128 && code < 128+65 {
		e.Signal = uint8(code - 128)
	}
	if cause.Budget != "" {
		e.Limit = cause.Budget + ": " + cells.AmountText(cause.Budget, cause.Limit)
		e.Peak = cells.AmountText(cause.Budget, cause.Peak)
	}
	return e
}

// CauseOf is the record's cause by the ledger's entry: the other way round than Entry,
// but for the amounts of a budget.
func CauseOf(e *kind.CellStopped) cells.Cause {
	c := cells.Cause{Word: e.Cause, Detail: string(e.Detail)}
	if c.Word == "operator" {
		c.Word = "stop"
	}
	c.Budget, _, _ = strings.Cut(e.Limit, ": ")
	return c
}

// Recorded is what the ledger in dir has of a cell's start and end, which are written
// there before they are in the cell's record; with an error, what could be read.
func Recorded(dir, id string) (started time.Time, end *kind.CellStopped, at time.Time, err error) {
	f := ledger.Filter{Cell: id, Kinds: []kind.Kind{kind.KindCellStarted, kind.KindCellStopped}}
	for e, err := range ledger.Read(dir, f) {
		var body kind.Body
		if err == nil {
			body, err = e.Decode()
		}
		if err != nil {
			return started, end, at, fmt.Errorf("read the entries of cell %s: %w", id, err)
		}
		switch body := body.(type) {
		case *kind.CellStarted:
			started = e.Time
		case *kind.CellStopped:
			end, at = body, e.Time
		}
	}
	return started, end, at, nil
}

// Of is Recorded for one ledger.
func Of(dir string) func(id string) (started time.Time, end *kind.CellStopped, at time.Time, err error) {
	return func(id string) (time.Time, *kind.CellStopped, time.Time, error) { return Recorded(dir, id) }
}

// Millis are the whole milliseconds of a duration, none of a negative one.
func Millis(d time.Duration) uint64 { return uint64(max(0, d.Milliseconds())) }
