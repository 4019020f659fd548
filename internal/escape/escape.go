// Package escape makes bytes from a cell safe to show on a terminal, in a log
// or on a card (L18a).
//
// Its laws:
//   - What comes out is printable Unicode that runs from left to right: no
//     control byte, no bidirectional override, nothing invisible, no byte that
//     is not UTF-8. So it cannot move a cursor, hide, or reorder what is beside it.
//   - It is one-to-one: a backslash is doubled, so what was escaped is not
//     mistaken for text that looks so, and two texts that differ look different.
//     [Sentence] alone leaves a backslash as it is.
//   - Only [Text] and [Writer] let a line end through, and a tab; [Line] does not.
package escape

import (
	"io"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Line returns s on one line, escaped.
func Line(s string) string {
	if isPlain(s) {
		return s
	}
	return string(appendEscaped(nil, s, false))
}

// Sentence returns one line of ours in which each name was escaped when it was made, as
// %q does: what is not printable is escaped, and no backslash a second time.
func Sentence(s string) string {
	return strings.ReplaceAll(Line(s), `\\`, `\`)
}

// Text returns s escaped but for line feeds and tabs. A carriage return is
// escaped: it could overwrite the line before it.
func Text(s string) string {
	if isPlain(s) {
		return s
	}
	return string(appendEscaped(nil, s, true))
}

func isPlain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < 0x20 || c >= 0x7f || c == '\\' {
			return false
		}
	}
	return true
}

func appendEscaped(dst []byte, s string, lines bool) []byte {
	for s != "" {
		r, n := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && n == 1:
			dst = appendByte(dst, s[0])
		case lines && (r == '\n' || r == '\t'):
			dst = append(dst, s[0])
		default:
			dst = appendRune(dst, r)
		}
		s = s[n:]
	}
	return dst
}

func appendByte(dst []byte, b byte) []byte {
	const hex = "0123456789abcdef"
	return append(dst, '\\', 'x', hex[b>>4], hex[b&15])
}

func appendRune(dst []byte, r rune) []byte {
	switch {
	case r == '\\':
		return append(dst, '\\', '\\')
	case r == '\n':
		return append(dst, '\\', 'n')
	case r == '\t':
		return append(dst, '\\', 't')
	case r == '\r':
		return append(dst, '\\', 'r')
	case r < 0x80 && !strconv.IsPrint(r):
		return appendByte(dst, byte(r))
	case isShown(r):
		return utf8.AppendRune(dst, r)
	}
	dst = append(dst, '\\', 'u', '{')
	dst = strconv.AppendInt(dst, int64(r), 16)
	return append(dst, '}')
}

// isShown reports whether a terminal shows r as something, where it stands.
// IsPrint refuses controls, format characters (the bidirectional ones among
// them), separators but the space, surrogates and what is unassigned; the rest
// are letters and marks that no font draws.
func isShown(r rune) bool {
	if r < 0x80 {
		return strconv.IsPrint(r)
	}
	return strconv.IsPrint(r) && !unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector) && r != '\u2800'
}

// Writer escapes what is written to it as [Text] does, holding back a rune that
// is not complete until the next write or [Writer.Flush].
type Writer struct {
	w    io.Writer
	held []byte // fewer than utf8.UTFMax bytes
}

// NewWriter returns a Writer that writes to w.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w} }

// Write implements io.Writer. It reports all of p as written unless the writer
// beneath fails.
func (e *Writer) Write(p []byte) (int, error) {
	b := append(e.held, p...)
	cut := len(b)
	for back := 1; back < utf8.UTFMax && back <= len(b); back++ {
		if utf8.RuneStart(b[len(b)-back]) {
			if !utf8.FullRune(b[len(b)-back:]) {
				cut = len(b) - back
			}
			break
		}
	}
	if _, err := e.w.Write(appendEscaped(nil, string(b[:cut]), true)); err != nil {
		return 0, err
	}
	e.held = append([]byte(nil), b[cut:]...)
	return len(p), nil
}

// Flush writes the bytes of a rune that never became complete.
func (e *Writer) Flush() error {
	_, err := e.w.Write(appendEscaped(nil, string(e.held), true))
	e.held = nil
	return err
}
