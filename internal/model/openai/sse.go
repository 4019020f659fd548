package openai

import (
	"bytes"
	"errors"
	"fmt"
	"io"
)

// MaxEvent bounds one event of a stream in bytes; a whole file may be one tool
// argument.
const MaxEvent = 16 << 20

// Done is the data of the event that ends a stream.
const Done = "[DONE]"

// ErrCut says that a stream ended within an event.
var ErrCut = errors.New("the stream was cut off")

// Events splits an event stream (WHATWG HTML, section 9.2.6) into the data of its
// events. An event is returned as soon as the byte that ends it has arrived,
// however the bytes were cut into reads; data is not looked into, so a
// character cut in two by a read stays whole.
type Events struct {
	from   io.Reader
	buf    []byte // what was read and not yet used
	skipLF bool   // the last line ended with CR: an LF belongs to it
	err    error  // the error that follows buf
}

// NewEvents reads events from r.
func NewEvents(r io.Reader) *Events { return &Events{from: r} }

// Next returns the data of the next event, its lines joined by LF; events without
// data (comments, pings) are passed over. io.EOF ends the stream, ErrCut says
// that it ended within an event. The slice is the caller's.
func (e *Events) Next() ([]byte, error) {
	var data []byte
	var any bool
	for {
		line, err := e.line()
		if errors.Is(err, io.EOF) {
			return atEOF(data, any)
		}
		if err != nil {
			return nil, err
		}
		if len(line) == 0 {
			if any {
				return data, nil
			}
			continue
		}
		value, ok := bytes.CutPrefix(line, []byte("data"))
		if !ok || (len(value) > 0 && value[0] != ':') {
			continue // a comment, event, id or retry: nothing of this dialect
		}
		value = bytes.TrimPrefix(bytes.TrimPrefix(value, []byte(":")), []byte(" "))
		if len(data)+len(value) > MaxEvent {
			return nil, fmt.Errorf("an event is longer than %d bytes", MaxEvent)
		}
		if any {
			data = append(data, '\n')
		}
		data, any = append(data, value...), true
	}
}

// atEOF lets a last event pass that lacks only its empty line: servers write
// their end mark so.
func atEOF(data []byte, any bool) ([]byte, error) {
	switch {
	case !any:
		return nil, io.EOF
	case string(data) == Done:
		return data, nil
	}
	return nil, ErrCut
}

// line returns the next line without its end, which is LF, CR or CRLF. It is
// valid until the next call. A line without an end at the end of the stream
// is dropped, but for data that completes the end mark.
func (e *Events) line() ([]byte, error) {
	scanned := 0
	for {
		if e.skipLF && len(e.buf) > 0 {
			if e.buf[0] == '\n' {
				e.buf = e.buf[1:]
			}
			e.skipLF = false
		}
		if i := lineEnd(e.buf[scanned:]); i >= 0 {
			end := scanned + i
			line := e.buf[:end]
			e.skipLF = e.buf[end] == '\r'
			e.buf = e.buf[end+1:]
			return line, nil
		}
		scanned = len(e.buf)
		if e.err != nil {
			return e.lastLine()
		}
		if scanned > MaxEvent {
			return nil, fmt.Errorf("a line is longer than %d bytes", MaxEvent)
		}
		e.fill()
	}
}

// lineEnd finds the first LF or CR, -1 if there is none.
func lineEnd(b []byte) int {
	lf := bytes.IndexByte(b, '\n')
	if lf >= 0 {
		b = b[:lf]
	}
	if cr := bytes.IndexByte(b, '\r'); cr >= 0 {
		return cr
	}
	return lf
}

// lastLine is what stands after the last line end.
func (e *Events) lastLine() ([]byte, error) {
	line := e.buf
	e.buf = nil
	if errors.Is(e.err, io.EOF) && len(line) > 0 {
		if bytes.HasPrefix(line, []byte("data:")) {
			return line, nil
		}
		return nil, io.EOF
	}
	return nil, e.err
}

// fill reads once more; memory grows only with a line that is longer than what
// there is.
func (e *Events) fill() {
	if cap(e.buf)-len(e.buf) < 4<<10 {
		bigger := make([]byte, len(e.buf), max(16<<10, 2*len(e.buf)))
		copy(bigger, e.buf)
		e.buf = bigger
	}
	n, err := e.from.Read(e.buf[len(e.buf):cap(e.buf)])
	e.buf = e.buf[:len(e.buf)+n]
	e.err = err
}

// AppendEvent appends data as one event: "data: " before each line, and an empty
// line. Data of this dialect has no line ends, but a provider may send them.
func AppendEvent(dst, data []byte) []byte {
	for line := range bytes.SplitSeq(data, []byte("\n")) {
		dst = append(dst, "data: "...)
		dst = append(dst, line...)
		dst = append(dst, '\n')
	}
	return append(dst, '\n')
}
