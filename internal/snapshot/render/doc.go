// Package render shows a difference to a person or a program (S2).
//
// Its laws:
//   - Every byte that a cell chose is escaped (L18a): names, targets, contents,
//     attribute names.
//   - What runs by itself on the host comes first (S5a), then the rest, then
//     what no merge would apply, each with its reason. Nothing is left unsaid: an
//     entry is in exactly one of the three, and a rename tells of two.
//   - The hash is shown after the text that it binds, and only if every content
//     that was shown is the content that it binds.
package render

import (
	"context"
	"os"

	"skep.dev/skep/internal/snapshot"
)

// Contents opens a regular file of one side to read; the caller closes it.
// *layer.Client has it.
type Contents interface {
	Open(ctx context.Context, side snapshot.Side, grant int, path string) (*os.File, error)
}

// Options says how much is shown.
type Options struct {
	Color    bool
	Stat     bool   // one line per path with its counts, no contents
	NameOnly bool   // full paths alone, one per line; no hash
	Cell     string // named in the closing hint; may be empty
}
