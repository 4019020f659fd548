package terminal

import "io"

// LastLine knows whether what a cell wrote to our terminals ends in the middle of a
// line. Its writers are used by one goroutine; the zero value has seen nothing.
type LastLine struct{ open bool }

// Open tells whether the last line has no end.
func (l *LastLine) Open() bool { return l.open }

// Of is w, watched if it is a terminal.
func (l *LastLine) Of(w io.Writer) io.Writer {
	if !IsTerminal(w) {
		return w
	}
	return watched{w, l}
}

type watched struct {
	io.Writer
	line *LastLine
}

func (w watched) Write(b []byte) (int, error) {
	n, err := w.Writer.Write(b)
	if n > 0 {
		w.line.open = b[n-1] != '\n'
	}
	return n, err
}
