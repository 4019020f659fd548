package kind

// Capture is what the snapshot entries say.
type Capture struct {
	Capture string `json:"capture"`
	Parent  string `json:"parent,omitempty"`
	Digest  string `json:"digest"`
	Files   uint64 `json:"files"`
	Bytes   uint64 `json:"bytes"`
	Child   string `json:"child,omitempty"` // the cell that a fork started
}

// SnapshotCaptured froze a layer (S6).
type SnapshotCaptured Capture

// SnapshotRolledback returned a cell's layer to a capture (S8).
type SnapshotRolledback Capture

// SnapshotForked started a sibling from a capture (S8).
type SnapshotForked Capture

// DiffShown says that a person was shown the difference with this hash (S3).
type DiffShown struct {
	Hash      string `json:"hash"`
	Who       string `json:"who"`
	Added     uint64 `json:"added"`
	Removed   uint64 `json:"removed"`
	Changed   uint64 `json:"changed"`
	Renamed   uint64 `json:"renamed"`
	Refused   uint64 `json:"refused"`
	Conflicts uint64 `json:"conflicts"`
	Active    uint64 `json:"active"` // paths that make programs of the host run something (S5a)
}

// Path is one path of a merge: what was done to it, and the digest of what was
// there and of what is there now; empty where there was or is nothing.
type Path struct {
	Path  Bytes  `json:"path"`
	Op    string `json:"op"` // add, remove, change, rename, mode
	Base  string `json:"base,omitempty"`
	Layer string `json:"layer,omitempty"`
}

// MergeApplied holds who approved, the hash, and every path (S4). A merge whose
// paths do not fit one entry is recorded in Parts of them, numbered from 1.
type MergeApplied struct {
	Hash  string `json:"hash"`
	Who   string `json:"who"`
	Root  Bytes  `json:"root"`
	Paths []Path `json:"paths"`
	Part  uint32 `json:"part"`
	Parts uint32 `json:"parts"`
	Undo  bool   `json:"undo,omitempty"` // a merge that was taken back
}

// MergeRefused is a merge, or the taking back of one, that changed nothing.
type MergeRefused struct {
	Hash   string `json:"hash"`
	Who    string `json:"who"`
	Root   Bytes  `json:"root"`
	Reason string `json:"reason"`
	Paths  []Path `json:"paths"` // those in the way
	Undo   bool   `json:"undo,omitempty"`
}

// Kind implements [Body].
func (SnapshotCaptured) Kind() Kind { return KindSnapshotCaptured }

// Kind implements [Body].
func (SnapshotRolledback) Kind() Kind { return KindSnapshotRolledback }

// Kind implements [Body].
func (SnapshotForked) Kind() Kind { return KindSnapshotForked }

// Kind implements [Body].
func (DiffShown) Kind() Kind { return KindDiffShown }

// Kind implements [Body].
func (MergeApplied) Kind() Kind { return KindMergeApplied }

// Kind implements [Body].
func (MergeRefused) Kind() Kind { return KindMergeRefused }
