package merging

import (
	"unicode/utf8"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/internal/cli/words"
	"skep.dev/skep/internal/snapshot/merge"
)

// Report is what `skep merge --json` prints.
type Report struct {
	Cell    string       `json:"cell"`
	State   string       `json:"state"` // merged, or stopped while something of it is held back
	Hash    string       `json:"hash"`
	Merged  []ReportPath `json:"merged"`
	LeftOut []ReportPath `json:"left_out"`
}

// ReportPath is a path as in `skep diff --json`: what is not UTF-8 comes as bytes, too.
type ReportPath struct {
	Path      string `json:"path"`
	PathBytes []byte `json:"path_bytes,omitempty"`
	Reason    string `json:"reason,omitempty"`   // why it was left out
	Replaced  bool   `json:"replaced,omitempty"` // what changed in the tree since the cell started
}

// ReportOf tells what became of a merge; replaced are the paths that were changed in the
// tree since the cell started.
func ReportOf(c *skepv1.Cell, r merge.Result, replaced map[string]bool) Report {
	out := Report{Cell: c.Id, State: words.State(c.State), Hash: r.Hash, Merged: []ReportPath{}, LeftOut: []ReportPath{}}
	for _, p := range r.Merged {
		m := pathOf(p.Path, "")
		m.Replaced = replaced[p.Path]
		out.Merged = append(out.Merged, m)
	}
	for _, p := range r.LeftOut {
		out.LeftOut = append(out.LeftOut, pathOf(p.Path, p.Reason))
	}
	return out
}

func pathOf(path, reason string) ReportPath {
	p := ReportPath{Path: path, Reason: reason}
	if !utf8.ValidString(path) {
		p.PathBytes = []byte(path)
	}
	return p
}
