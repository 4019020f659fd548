package render

import (
	"bufio"
	"context"
	"fmt"
	"io"

	"skep.dev/skep/internal/escape"
	"skep.dev/skep/internal/snapshot"
)

// Terminal writes the difference for a person. On an error the hash was not
// written.
func Terminal(ctx context.Context, w io.Writer, d *snapshot.Difference, c Contents, o Options) error {
	t := &terminal{ctx: ctx, w: bufio.NewWriter(w), d: d, contents: c, o: o}
	err := t.all()
	if flushed := t.w.Flush(); err == nil {
		err = flushed
	}
	return err
}

type terminal struct {
	ctx      context.Context
	w        *bufio.Writer // keeps its first error
	d        *snapshot.Difference
	contents Contents
	o        Options

	files, added, removed int
}

// The colours, as SGR sequences; ours alone reach the terminal.
const (
	bold   = "\x1b[1m"
	red    = "\x1b[31m"
	green  = "\x1b[32m"
	yellow = "\x1b[33m"
	cyan   = "\x1b[36m"
	reset  = "\x1b[0m"
)

func (t *terminal) line(color, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if t.o.Color && color != "" {
		text = color + text + reset
	}
	_, _ = t.w.WriteString(text + "\n")
}

// section is one of the three parts; every entry belongs to exactly one.
type section struct {
	title, color string
	has          func(*snapshot.Entry) bool
}

func sections() []section {
	return []section{
		{"Programs of this host may run something because of these:", bold + yellow,
			func(e *snapshot.Entry) bool { return e.Active != "" && e.Refused == "" }},
		{"", "", func(e *snapshot.Entry) bool { return e.Active == "" && e.Refused == "" }},
		{"A merge never applies these:", bold + red,
			func(e *snapshot.Entry) bool { return e.Refused != "" }},
	}
}

func (t *terminal) all() error {
	if t.o.NameOnly {
		for i := range t.d.Entries {
			t.line("", "%s", escape.Line(t.d.FullPath(&t.d.Entries[i])))
		}
		return nil
	}
	if len(t.d.Entries) == 0 {
		t.line("", "No difference: the cell changed nothing in its granted trees.")
		return nil
	}
	renames := t.d.Renames()
	for _, s := range sections() {
		titled := s.title == ""
		for i := range t.d.Entries {
			e := &t.d.Entries[i]
			if !s.has(e) {
				continue
			}
			if !titled {
				t.line(s.color, "%s", s.title)
				titled = true
			}
			if _, is := renames.To[i]; is {
				continue // told where it went
			}
			if from, is := renames.From[i]; is {
				t.renamed(&t.d.Entries[from], e)
				continue
			}
			if err := t.entry(e); err != nil {
				return fmt.Errorf("show %s: %w", escape.Line(t.d.FullPath(e)), err)
			}
		}
	}
	t.line("", "")
	if n := t.d.Conflicts(); n > 0 {
		t.line(bold+red, "%s changed in your tree since the cell started: merging replaces what changed there", count(n, "path"))
	}
	t.line("", "%s, %s added, %d removed", count(t.files, "path"), count(t.added, "line"), t.removed)
	t.line(bold, "%s", t.d.Hash)
	if t.o.Cell != "" {
		t.line("", "To apply exactly this: skep merge %s %s", escape.Line(t.o.Cell), t.d.Hash[:snapshot.MinHashPrefix])
	}
	return nil
}

func count(n int, word string) string {
	if n == 1 {
		return "1 " + word
	}
	return fmt.Sprintf("%d %ss", n, word)
}

func (t *terminal) entry(e *snapshot.Entry) error {
	t.files++
	c, err := contentChange(t.ctx, t.contents, e)
	if err != nil {
		return err
	}
	t.added += c.added
	t.removed += c.removed
	head := fmt.Sprintf("%-8s %s", e.Op(), escape.Line(t.d.FullPath(e)))
	if about := describe(e); about != "" {
		head += "  (" + about + ")"
	}
	t.line(bold, "%s", head)
	switch {
	case e.Refused != "":
		t.line(red, "    refused: %s", escape.Line(e.Refused))
	case e.Held:
		t.line(yellow, "    %s; left out of a merge unless --with-active names it", e.Active)
	case e.Active != "":
		t.line(yellow, "    %s", e.Active)
	}
	t.conflict(e)
	if c.binary != "" {
		t.line("", "    %s", c.binary)
	}
	if t.o.Stat {
		if c.added+c.removed > 0 {
			t.line("", "    %s added, %d removed", count(c.added, "line"), c.removed)
		}
		return nil
	}
	for _, line := range c.lines {
		if line == noLineEnd { // the one line that is none of the file
			t.line("", "%s", line)
			continue
		}
		t.line(lineColor(line), "%s", escape.Text(line))
	}
	return nil
}

// renamed tells of two operations in one line: a content that only has another path.
func (t *terminal) renamed(from, to *snapshot.Entry) {
	t.files += 2
	head := fmt.Sprintf("%-8s %s -> %s", "renamed", escape.Line(t.d.FullPath(from)), escape.Line(t.d.FullPath(to)))
	if about := describe(&snapshot.Entry{Base: from.Base, Layer: to.Layer}); about != "" {
		head += "  (" + about + ")"
	}
	t.line(bold, "%s", head)
	t.conflict(from)
	t.conflict(to)
}

// conflict tells of a change that a merge would undo without a word.
func (t *terminal) conflict(e *snapshot.Entry) {
	if e.Conflict {
		t.line(bold+red, "    changed in your tree since the cell started: merging replaces that change")
	}
}

func lineColor(line string) string {
	switch line[0] {
	case '+':
		return green
	case '-':
		return red
	case '@':
		return cyan
	}
	return ""
}
