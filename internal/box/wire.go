package box

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"unicode/utf8"
)

// The messages of api/skep/v1/box.proto in the wire form of Protocol Buffers
// (protobuf.dev/programming-guides/encoding). The box reads and writes these few
// itself: the generated code builds tables of every message of the API in every
// box. wire_test.go compares both, field for field.

// Wire types: a number, eight bytes, a length and bytes, four bytes.
const (
	wireNumber = 0
	wireBytes  = 2
)

var errWire = errors.New("malformed message")

// field is one field of a message.
type field struct {
	number int
	value  uint64 // of wireNumber
	bytes  []byte // of wireBytes; nil for a number
}

// reader reads messages and keeps the first fault. What it does not know is a
// fault: daemon and box are of one release, and a rule of which a part is not
// understood must not be used (B88).
type reader struct{ err error }

func (r *reader) fail(err error) {
	if err != nil && r.err == nil {
		r.err = err
	}
}

// fields hands the fields of one message on, in their order.
func (r *reader) fields(message []byte, each func(field)) {
	for b := message; len(b) > 0 && r.err == nil; {
		tag, n := binary.Uvarint(b)
		if n <= 0 || tag>>3 == 0 || tag>>3 > math.MaxInt32 {
			r.fail(errWire)
			return
		}
		b = b[n:]
		value, n := binary.Uvarint(b)
		if n <= 0 {
			r.fail(errWire)
			return
		}
		b = b[n:]
		f := field{number: int(tag >> 3), value: value}
		switch tag & 7 {
		case wireNumber:
		case wireBytes:
			if value > uint64(len(b)) {
				r.fail(errWire)
				return
			}
			f.bytes, b = b[:value:value], b[value:]
		default:
			r.fail(errWire)
			return
		}
		each(f)
	}
}

// unknown is the fault of a field that message does not have.
func (r *reader) unknown(message string, f field) {
	r.fail(fmt.Errorf("%s has a field %d that this box does not know", message, f.number))
}

func (r *reader) message(f field) []byte {
	if f.bytes == nil {
		r.fail(errWire)
	}
	return f.bytes
}

func (r *reader) text(f field) string {
	if f.bytes == nil || !utf8.Valid(f.bytes) {
		r.fail(errWire)
	}
	return string(f.bytes)
}

// number reads a value of at most max.
func (r *reader) number(f field, max uint64) uint64 {
	if f.bytes != nil || f.value > max {
		r.fail(errWire)
		return 0
	}
	return f.value
}

func (r *reader) flag(f field) bool { return r.number(f, 1) == 1 }

// writer is a message under construction. A zero value is not written, as ever in
// proto3.
type writer []byte

func (w *writer) number(field int, v uint64) {
	if v != 0 {
		*w = binary.AppendUvarint(binary.AppendUvarint(*w, uint64(field)<<3|wireNumber), v)
	}
}

// message writes a nested message, which may be empty.
func (w *writer) message(field int, b []byte) {
	*w = binary.AppendUvarint(binary.AppendUvarint(*w, uint64(field)<<3|wireBytes), uint64(len(b)))
	*w = append(*w, b...)
}

func (w *writer) text(field int, s string) {
	if s != "" {
		w.message(field, []byte(s))
	}
}
