package terminal

import (
	"bytes"
	"io"
	"strconv"
)

// Filter passes a terminal program's output on without what would act beyond the
// screen: control strings that set title or clipboard, and everything to which a
// terminal answers by itself, as its answer would be typed into whatever runs next.
// A sequence is held back until it is whole; what exceeds maxSequence is dropped.
type Filter struct {
	w    io.Writer
	seq  []byte // of the sequence that has begun
	kind sequence
	big  bool // it has become too long
}

// sequence is what kind of control sequence has begun (ECMA-48, section 5).
type sequence int

const (
	plain   sequence = iota
	escaped          // after ESC
	csi              // up to a final byte
	control          // OSC, DCS, APC, PM, SOS: up to ST, or BEL
	lead             // the first byte, 0xC2, of a C1 character in UTF-8
)

const maxSequence = 4096

// NewFilter returns a Filter that writes to w.
func NewFilter(w io.Writer) *Filter { return &Filter{w: w} }

// Write implements io.Writer.
func (f *Filter) Write(p []byte) (int, error) {
	out := make([]byte, 0, len(p)+len(f.seq))
	for _, c := range p {
		out = f.step(out, c)
	}
	if len(out) > 0 {
		if _, err := f.w.Write(out); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

func (f *Filter) step(out []byte, c byte) []byte {
	switch f.kind {
	case plain:
		switch c {
		case 0x1b:
			f.begin(escaped, c)
		case 0xc2:
			f.begin(lead, c)
		case 0x05: // ENQ: the terminal answers
		default:
			out = append(out, c)
		}
	case lead:
		return f.leadStep(out, c)
	case escaped:
		return f.escapeStep(out, c)
	case csi:
		return f.csiStep(out, c)
	case control:
		return f.controlStep(out, c)
	}
	return out
}

func (f *Filter) begin(k sequence, c ...byte) {
	f.kind, f.big = k, false
	f.seq = append(f.seq[:0], c...)
}

func (f *Filter) end() { f.kind, f.seq = plain, f.seq[:0] }

func (f *Filter) hold(c byte) {
	if len(f.seq) < maxSequence {
		f.seq = append(f.seq, c)
	} else {
		f.big = true
	}
}

// leadStep turns a C1 control character into its seven-bit form, or goes on.
func (f *Filter) leadStep(out []byte, c byte) []byte {
	if c >= 0x80 && c <= 0x9f {
		f.begin(escaped, 0x1b)
		return f.escapeStep(out, c-0x40)
	}
	f.end()
	if c < 0x80 || c > 0xbf {
		return f.step(out, c) // no character: alone it could meet a byte that makes it a control
	}
	return append(out, 0xc2, c)
}

func (f *Filter) escapeStep(out []byte, c byte) []byte {
	switch {
	case c == '[':
		f.begin(csi, 0x1b, c)
	case bytes.IndexByte([]byte("]PX^_"), c) >= 0:
		f.begin(control, 0x1b, c)
	case c == 0x1b:
		f.begin(escaped, c)
	case c == 'Z': // DECID: the terminal answers
		f.end()
	case c == 0x18 || c == 0x1a: // CAN, SUB
		f.end()
	case c < 0x20: // executed at once, also within a sequence
		if c != 0x05 {
			out = append(out, c)
		}
	case c > 0x7e: // no part of a sequence
		f.end()
	case c >= 0x20 && c <= 0x2f: // an intermediate: the final byte follows
		f.hold(c)
		if f.big {
			f.end()
		}
	default:
		out = append(append(out, f.seq...), c)
		f.end()
	}
	return out
}

func (f *Filter) csiStep(out []byte, c byte) []byte {
	switch {
	case c == 0x1b:
		f.begin(escaped, c)
	case c == 0x18 || c == 0x1a:
		f.end()
	case c < 0x20: // executed at once, also within a sequence
		if c != 0x05 {
			out = append(out, c)
		}
	case c >= 0x40 && c <= 0x7e:
		f.hold(c)
		if !f.big && !answered(f.seq[2:]) {
			out = append(out, f.seq...)
		}
		f.end()
	case c > 0x7e: // no part of a sequence
		f.end()
	default:
		f.hold(c)
	}
	return out
}

// answered tells whether a terminal answers a CSI sequence, or keeps a title by it.
func answered(body []byte) bool {
	final := body[len(body)-1]
	switch final {
	case 'n', 'c', 'x': // device status, attributes, parameters
		return true
	case 't': // window operations: reports, and the stack of titles
		first, _, _ := bytes.Cut(body[:len(body)-1], []byte{';'})
		op, err := strconv.Atoi(string(first))
		return err != nil || op >= 11 && op != 24
	case 'p', 'y', 'w', 'v': // with an intermediate: mode, checksum, state reports
		return bytes.ContainsAny(body[:len(body)-1], "$*&'")
	case 'u': // kitty keyboard: a query
		return bytes.HasPrefix(body, []byte("?"))
	case 'q': // XTVERSION
		return bytes.HasPrefix(body, []byte(">"))
	}
	return false
}

func (f *Filter) controlStep(out []byte, c byte) []byte {
	last := f.seq[len(f.seq)-1]
	switch {
	case c == 0x07 || c == '\\' && last == 0x1b || c == 0x9c && last == 0xc2:
		body := f.seq[2:]
		if last == 0x1b || last == 0xc2 {
			body = body[:max(0, len(body)-1)]
		}
		if f.seq[1] == ']' && !f.big && harmless(body) {
			out = append(append(out, 0x1b, ']'), body...)
			out = append(out, 0x1b, '\\')
		}
		f.end()
	case c == 0x18 || c == 0x1a:
		f.end()
	case f.big: // only its end matters
		f.seq[len(f.seq)-1] = c
	case last == 0x1b && len(f.seq) > 2: // an escape that was no ST begins anew
		f.begin(escaped, 0x1b)
		return f.escapeStep(out, c)
	default:
		f.hold(c)
	}
	return out
}

// harmless tells which operating system commands only draw: links, colours that
// are set, and marks of a prompt.
func harmless(body []byte) bool {
	number, rest, _ := bytes.Cut(body, []byte{';'})
	for _, c := range rest {
		if c < 0x20 {
			return false
		}
	}
	switch string(number) {
	case "8", "133", "104", "110", "111", "112":
		return true
	case "4", "10", "11", "12":
		return !bytes.Contains(rest, []byte("?")) // which asks for the colour
	}
	return false
}
