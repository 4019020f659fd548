package cli

import (
	"unicode/utf8"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/internal/cli/words"
	"skep.dev/skep/internal/snapshot/merge"
)

// merged is what `skep merge --json` prints.
type merged struct {
	Cell    string       `json:"cell"`
	State   string       `json:"state"` // merged, or stopped while something of it is held back
	Hash    string       `json:"hash"`
	Merged  []mergedPath `json:"merged"`
	LeftOut []mergedPath `json:"left_out"`
}

// mergedPath is a path as in `skep diff --json`: what is not UTF-8 comes as bytes, too.
type mergedPath struct {
	Path      string `json:"path"`
	PathBytes []byte `json:"path_bytes,omitempty"`
	Reason    string `json:"reason,omitempty"` // why it was left out
}

func mergedOf(c *skepv1.Cell, r merge.Result) merged {
	out := merged{Cell: c.Id, State: words.State(c.State), Hash: r.Hash, Merged: []mergedPath{}, LeftOut: []mergedPath{}}
	for _, p := range r.Merged {
		out.Merged = append(out.Merged, pathOf(p.Path, ""))
	}
	for _, p := range r.LeftOut {
		out.LeftOut = append(out.LeftOut, pathOf(p.Path, p.Reason))
	}
	return out
}

func pathOf(path, reason string) mergedPath {
	p := mergedPath{Path: path, Reason: reason}
	if !utf8.ValidString(path) {
		p.PathBytes = []byte(path)
	}
	return p
}
