package snapshot

// MaxRenameCandidates bounds the search for renames: of more files that came or went
// none is called renamed.
const MaxRenameCandidates = 100_000

// Renames tells which files only have another path, by their index in Entries. It is
// a reading of the difference: the operations stay one removal and one addition each,
// and it is they that the hash binds and a merge applies (S3, S4).
type Renames struct {
	From map[int]int // of an addition: the removal that it was
	To   map[int]int // of a removal: the addition that it became
}

// content is what makes two files one; grants are trees of their own.
type content struct {
	grant  int
	size   int64
	digest [32]byte
}

// Renames pairs a removal with an addition of the same bytes in the same grant, where
// there is exactly one of each. Nothing is paired that a reader must see in its own
// place: an empty file, what a merge refuses, what programs of the host run (S5a).
func (d *Difference) Renames() Renames {
	r := Renames{From: map[int]int{}, To: map[int]int{}}
	type ends struct{ removed, added []int }
	found := map[content]*ends{}
	candidates := 0
	for i := range d.Entries {
		e := &d.Entries[i]
		op := e.Op()
		side := &e.Base
		if op == Added {
			side = &e.Layer
		}
		if op != Added && op != Removed || side.Type != File || side.Size == 0 || side.Unreadable || e.Refused != "" || e.Active != "" {
			continue
		}
		if candidates++; candidates > MaxRenameCandidates {
			return Renames{}
		}
		key := content{e.Grant, side.Size, side.Digest}
		if found[key] == nil {
			found[key] = &ends{}
		}
		if op == Added {
			found[key].added = append(found[key].added, i)
		} else {
			found[key].removed = append(found[key].removed, i)
		}
	}
	for _, f := range found {
		if len(f.removed) == 1 && len(f.added) == 1 {
			r.From[f.added[0]], r.To[f.removed[0]] = f.removed[0], f.added[0]
		}
	}
	return r
}
