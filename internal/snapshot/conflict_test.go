package snapshot_test

import (
	"testing"
	"time"

	"skep.dev/skep/internal/snapshot"
)

func TestConflictIsABaseThatChangedAfterTheStart(t *testing.T) {
	start := time.Unix(100, 0)
	after, before := start.Add(1), start.Add(-1)
	old := snapshot.State{Type: snapshot.File, Mode: 0o644, Size: 1, Digest: [32]byte{1}}
	changed := snapshot.State{Type: snapshot.File, Mode: 0o644, Size: 1, Digest: [32]byte{2}}
	wider := old
	wider.Mode = 0o666 // merged as 0644: an earlier merge of this cell has written it
	narrower := old
	narrower.Mode = 0o600
	dir := snapshot.State{Type: snapshot.Dir, Mode: 0o755}
	closed := snapshot.State{Type: snapshot.Dir, Mode: 0o700}
	for name, c := range map[string]struct {
		entry snapshot.Entry
		want  bool
	}{
		"edited on the host":                {snapshot.Entry{Base: old, Layer: changed, BaseChanged: after}, true},
		"edited before the start":           {snapshot.Entry{Base: old, Layer: changed, BaseChanged: before}, false},
		"edited at the start":               {snapshot.Entry{Base: old, Layer: changed, BaseChanged: start}, false},
		"removed in the cell":               {snapshot.Entry{Base: old, BaseChanged: after}, true},
		"added in the cell":                 {snapshot.Entry{Layer: changed}, false},
		"another mode":                      {snapshot.Entry{Base: old, Layer: narrower, BaseChanged: after}, true},
		"merged already":                    {snapshot.Entry{Base: old, Layer: wider, BaseChanged: after}, false},
		"the mode of a directory":           {snapshot.Entry{Base: dir, Layer: closed, BaseChanged: after}, false},
		"a directory that the cell removed": {snapshot.Entry{Base: dir, BaseChanged: after}, false},
		"never merged":                      {snapshot.Entry{Base: old, Layer: changed, BaseChanged: after, Refused: "why"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			d := snapshot.Difference{Entries: []snapshot.Entry{c.entry}}
			d.MarkConflicts(start)
			if got := d.Entries[0].Conflict; got != c.want {
				t.Errorf("conflict %v, want %v", got, c.want)
			}
			if got := d.Conflicts() == 1; got != c.want {
				t.Errorf("counted %d", d.Conflicts())
			}
		})
	}
}
