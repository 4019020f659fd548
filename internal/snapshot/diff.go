package snapshot

import (
	"context"
	"fmt"
	"sort"
	"strings"
)

// MaxEntries bounds one difference. The list is held in memory (about 400
// bytes each and the paths); the trees themselves are not.
const MaxEntries = 2_000_000

// Walker yields every entry of a layer, in any order, until yield fails.
type Walker interface {
	Walk(ctx context.Context, yield func(Entry) error) error
}

// Judge says whether the profile makes a path of a grant writable (L8). The
// nil Judge makes nothing writable.
type Judge func(grant int, path string) (writable bool)

// Difference is all that a cell changed, and the hash that binds it.
type Difference struct {
	Grants  []string // the host path of each grant's root, by Entry.Grant
	Entries []Entry  // sorted by full path in byte order
	Hash    string   // 64 hex, S3
}

// Diff walks the layer, judges and classifies every entry, sorts and hashes.
// grants are the host paths of the roots, as the layer process numbers them. It
// fails on an entry that a layer process which keeps its contract cannot send.
func Diff(ctx context.Context, layer Walker, grants []string, judge Judge) (*Difference, error) {
	d := &Difference{Grants: grants}
	err := layer.Walk(ctx, func(e Entry) error {
		if len(d.Entries) >= MaxEntries {
			return fmt.Errorf("more than %d changed paths", MaxEntries)
		}
		if err := checkEntry(&e, len(grants)); err != nil {
			return err
		}
		e.Refused = refusal(&e, judge)
		classify(&e, grants[e.Grant])
		d.Entries = append(d.Entries, e)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("walk layer: %w", err)
	}
	sort.Slice(d.Entries, d.before)
	for i := 1; i < len(d.Entries); i++ {
		if d.FullPath(&d.Entries[i-1]) == d.FullPath(&d.Entries[i]) {
			return nil, fmt.Errorf("walk layer: path %q came twice", clip(d.FullPath(&d.Entries[i])))
		}
	}
	d.Hash = HashEntries(d.Entries, d.FullPath)
	return d, nil
}

// FullPath is the entry's path on the host: what is sorted and hashed.
func (d *Difference) FullPath(e *Entry) string { return join(d.Grants[e.Grant], e.Path) }

// before is the order of full paths; within a grant that of the paths, so that
// no path is put together for it.
func (d *Difference) before(i, j int) bool {
	a, b := &d.Entries[i], &d.Entries[j]
	if a.Grant == b.Grant {
		return a.Path != b.Path && (a.Path == "." || (b.Path != "." && a.Path < b.Path))
	}
	return d.FullPath(a) < d.FullPath(b)
}

func join(root, path string) string {
	if path == "." {
		return root
	}
	return strings.TrimSuffix(root, "/") + "/" + path
}

func checkEntry(e *Entry, grants int) error {
	if e.Grant < 0 || e.Grant >= grants {
		return fmt.Errorf("entry of grant %d of %d", e.Grant, grants)
	}
	if err := CheckPath(e.Path); err != nil {
		return err
	}
	if e.Op() == OpNone {
		return fmt.Errorf("entry %q changes nothing", clip(e.Path))
	}
	return nil
}

// refusal puts what is true of the entry itself before what the profile says of its
// path: whoever judges again from what was sent (a merge) gives the same reason.
func refusal(e *Entry, judge Judge) string {
	switch {
	case e.Refused != "":
		return e.Refused
	case e.Base.Type.Special() || e.Layer.Type.Special():
		return "a FIFO, socket or device is never merged"
	case e.Layer.Oversized || e.Base.Oversized:
		return "its extended attributes are too large"
	case e.Layer.Unreadable:
		return "it cannot be read in the layer"
	case judge == nil || !judge(e.Grant, e.Path):
		return "the profile does not make this path writable"
	}
	return ""
}
