package changes

import (
	"fmt"

	"skep.dev/skep/internal/daemon/peer"
	"skep.dev/skep/internal/ledger/kind"
)

// told is what the record has of the end of a caller's merge, or of its taking back: more
// than nothing where skepd died after it had recorded it and before it had answered.
type told struct {
	parts    int // of merge.applied
	complete bool
	refused  bool
}

// proposal names a cell's merge, or the taking back of one, in the record.
func proposal(id string, undo bool) string {
	if undo {
		return "undo " + id
	}
	return "merge " + id
}

// told looks in the record for the end of what was last approved. The plan of this
// skepd's own approval that no call has come for cannot have one: it spares a look
// through the whole record.
func (c *Changes) told(id, hash string, undo bool, p peer.Peer) (told, error) {
	if _, first := c.fresh.LoadAndDelete(c.planPath(id, undo)); first {
		return told{}, nil
	}
	var t told
	kinds := []kind.Kind{kind.KindApprovalDecided, kind.KindMergeApplied, kind.KindMergeRefused}
	for e, err := range c.Record.Read(id, kinds) {
		if err != nil {
			return told{}, fmt.Errorf("look in the record for the end of the merge: %w", err)
		}
		switch b := e.Body.(type) {
		case *kind.ApprovalDecided:
			if b.Proposal == proposal(id, undo) {
				t = told{}
			}
		case *kind.MergeApplied:
			if b.Hash == hash && b.Who == p.String() && b.Undo == undo {
				t.parts = int(b.Part)
				t.complete = b.Part == b.Parts
			}
		case *kind.MergeRefused:
			t.refused = t.refused || b.Hash == hash && b.Who == p.String() && b.Undo == undo
		}
	}
	return t, nil
}
