package snapshot

import "time"

// MarkConflicts marks the entries whose base the host changed after started, when the
// cell had not begun: what it wrote there may not know that change, and a merge replaces
// it (S11). A file's ctime tells, so to the tick of the filesystem's clock, and also
// where times were set back. Whoever only removed a file leaves nothing to tell by.
func (d *Difference) MarkConflicts(started time.Time) {
	for i := range d.Entries {
		e := &d.Entries[i]
		e.Conflict = e.BaseChanged.After(started) && e.Refused == "" && e.replaces()
	}
}

// replaces reports whether a merge takes anything of the base's object away. A directory
// in place of a directory only gets another mode; and where nothing is left to be merged,
// an earlier merge of the same cell is what changed the base.
func (e *Entry) replaces() bool {
	b, l := &e.Base, &e.Layer
	switch {
	case b.Type == Absent, b.Type == Dir:
		return false
	case l.Type == Absent:
		return true
	}
	return !b.SameContent(*l) || !b.SameXattrs(*l) || b.Mode != MergedMode(*b, *l)
}

// Conflicts counts what MarkConflicts has marked.
func (d *Difference) Conflicts() int {
	n := 0
	for i := range d.Entries {
		if d.Entries[i].Conflict {
			n++
		}
	}
	return n
}
