package cells

import (
	"errors"
	"time"

	"connectrpc.com/connect"

	skepv1 "skep.dev/skep/api/skep/v1"
)

// Message is a record as the API shows it.
func Message(r Record) *skepv1.Cell {
	c := &skepv1.Cell{
		Id: r.ID, Name: r.Name, State: stateOf(r.State), Argv: r.Argv, ProfileName: r.ProfileName, ProfileDigest: r.ProfileDigest,
		Created: timeText(r.Created), Started: timeText(r.Started), Stopped: timeText(r.Stopped), ExitCode: int32(r.ExitCode),
		Cause: r.Cause.String(), Limit: r.Cause.Limit, Peak: r.Cause.Peak, CrossingsAllowed: r.Allowed, CrossingsRefused: r.Refused,
		Unenforced: r.Unenforced, WorkingDir: r.WorkingDir, Error: r.Cause.Detail, FilesChanged: r.FilesChanged,
	}
	for _, g := range r.Grants {
		c.Grants = append(c.Grants, &skepv1.Grant{Path: g.Path, Writable: g.Writable, Layer: int32(g.Layer)})
	}
	return c
}

func stateOf(s State) skepv1.CellState {
	switch s {
	case Declared:
		return skepv1.CellState_CELL_STATE_DECLARED
	case Building:
		return skepv1.CellState_CELL_STATE_BUILDING
	case Running:
		return skepv1.CellState_CELL_STATE_RUNNING
	case Stopping:
		return skepv1.CellState_CELL_STATE_STOPPING
	case Stopped:
		return skepv1.CellState_CELL_STATE_STOPPED
	case Failed:
		return skepv1.CellState_CELL_STATE_FAILED
	case Merged:
		return skepv1.CellState_CELL_STATE_MERGED
	case Dropped:
		return skepv1.CellState_CELL_STATE_DROPPED
	case Undone:
		return skepv1.CellState_CELL_STATE_UNDONE
	}
	return skepv1.CellState_CELL_STATE_UNSPECIFIED
}

func timeText(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

// APIError gives an error of Find its code.
func APIError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrNone):
		return connect.NewError(connect.CodeNotFound, err)
	default:
		return connect.NewError(connect.CodeInvalidArgument, err)
	}
}
