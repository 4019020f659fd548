package render

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/rogpeppe/go-internal/diff"

	"skep.dev/skep/internal/escape"
	"skep.dev/skep/internal/snapshot"
)

// MaxText is the size up to which a file is shown as text, per side.
const MaxText = 1 << 20

// errMoved says that a content is no longer what the hash binds.
var errMoved = errors.New("it changed while it was shown: run the command again")

// change is what a path's contents have to say.
type change struct {
	lines          []string // of a unified diff, without its header; unescaped
	added, removed int      // lines
	binary         string   // in place of lines: sizes and digests
}

// contentChange reads both sides of an entry whose content differs.
func contentChange(ctx context.Context, c Contents, e *snapshot.Entry) (change, error) {
	if e.Base.Type != snapshot.File && e.Layer.Type != snapshot.File {
		return change{}, nil
	}
	if e.Base.Type == e.Layer.Type && e.Base.SameContent(e.Layer) {
		return change{}, nil
	}
	if tooLarge(&e.Base) || tooLarge(&e.Layer) {
		return change{binary: sizes(e)}, nil
	}
	before, err := read(ctx, c, e, snapshot.BaseSide, &e.Base)
	if err != nil {
		return change{}, err
	}
	after, err := read(ctx, c, e, snapshot.LayerSide, &e.Layer)
	if err != nil {
		return change{}, err
	}
	if bytes.IndexByte(before, 0) >= 0 || bytes.IndexByte(after, 0) >= 0 {
		return change{binary: sizes(e)}, nil
	}
	return unified(before, after), nil
}

// tooLarge also holds for what cannot be read.
func tooLarge(s *snapshot.State) bool {
	return s.Type == snapshot.File && (s.Size > MaxText || s.Unreadable)
}

func read(ctx context.Context, c Contents, e *snapshot.Entry, side snapshot.Side, s *snapshot.State) ([]byte, error) {
	if s.Type != snapshot.File {
		return nil, nil
	}
	f, err := c.Open(ctx, side, e.Grant, e.Path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, MaxText+1))
	if err != nil {
		return nil, err
	}
	if sha256.Sum256(content) != s.Digest {
		return nil, errMoved
	}
	return content, nil
}

// noLineEnd says of the line before it that no line feed follows.
const noLineEnd = `\ No newline at end of file`

// unified uses an anchored diff, whose cost is n log n whatever the texts are:
// a cell could make a shortest-edit diff run for hours.
func unified(before, after []byte) change {
	var c change
	text := string(diff.Diff("a", before, "b", after))
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	for i, line := range lines {
		if i < 3 || line == "" { // "diff a b", "--- a", "+++ b"
			continue
		}
		switch line[0] {
		case '+':
			c.added++
		case '-':
			c.removed++
		}
		c.lines = append(c.lines, line)
	}
	return c
}

// sizes describes what is not shown as text.
func sizes(e *snapshot.Entry) string {
	side := func(s *snapshot.State) string {
		switch {
		case s.Type == snapshot.Absent:
			return "nothing"
		case s.Type != snapshot.File:
			return s.Type.String()
		case s.Unreadable:
			return fmt.Sprintf("%d bytes, unreadable", s.Size)
		}
		return fmt.Sprintf("%d bytes, sha256 %s", s.Size, hex.EncodeToString(s.Digest[:]))
	}
	return side(&e.Base) + " -> " + side(&e.Layer)
}

// describe is the line of what changed beside the content.
func describe(e *snapshot.Entry) string {
	b, l := &e.Base, &e.Layer
	var parts []string
	add := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	if l.Type == snapshot.Absent {
		add("%s", b.Type)
	} else if b.Type == snapshot.Absent {
		add("%s", l.Type)
	} else if b.Type != l.Type {
		add("%s -> %s", b.Type, l.Type)
	}
	if l.Type != snapshot.Absent && l.Type != snapshot.Symlink && (b.Type == snapshot.Absent || b.Mode != l.Mode) {
		mode := fmt.Sprintf("%04o", l.Mode)
		if b.Type != snapshot.Absent && b.Type != snapshot.Symlink {
			mode = fmt.Sprintf("%04o -> %s", b.Mode, mode)
		}
		if merged := snapshot.MergedMode(*b, *l); merged != l.Mode {
			mode += fmt.Sprintf(" (merged as %04o)", merged)
		}
		add("mode %s", mode)
	}
	for _, op := range e.Changes() {
		switch op {
		case snapshot.OwnerChanged:
			add("owner %d:%d -> %d:%d (not merged)", b.UID, b.GID, l.UID, l.GID)
		case snapshot.XattrChanged:
			add("attributes %s -> %s", xattrs(b), xattrs(l))
		}
	}
	if b.Type == snapshot.Absent && len(l.Xattrs) > 0 {
		add("attributes %s", xattrs(l))
	}
	switch {
	case b.Type == snapshot.Symlink && l.Type == snapshot.Symlink:
		add("target %s -> %s", escape.Line(b.Target), escape.Line(l.Target))
	case l.Type == snapshot.Symlink:
		add("target %s", escape.Line(l.Target))
	case b.Type == snapshot.Symlink:
		add("target was %s", escape.Line(b.Target))
	}
	return strings.Join(parts, ", ")
}

func xattrs(s *snapshot.State) string {
	if s.Oversized {
		return "[too large to list]"
	}
	var parts []string
	for _, x := range s.Xattrs {
		value := string(x.Value)
		if len(value) > 100 {
			value = fmt.Sprintf("%d bytes, sha256 %x", len(value), sha256.Sum256(x.Value))
		}
		parts = append(parts, escape.Line(x.Name)+"="+escape.Line(value))
	}
	return "[" + strings.Join(parts, " ") + "]"
}
