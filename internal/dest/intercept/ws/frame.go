package ws

import (
	"encoding/binary"
	"errors"
)

// Opcodes (RFC 6455, section 5.2).
const (
	opContinuation = 0
	opText         = 1
	opBinary       = 2
	opClose        = 8
	opPong         = 10
)

const (
	longHead   = 14 // a head with the longest length and a mask
	mostInPing = 125
)

// ErrFrame says that a peer broke the rules of frames, of which the next one can then
// not be found, or not be understood.
var ErrFrame = errors.New("malformed WebSocket frame")

// frame is the head of one.
type frame struct {
	final  bool
	op     byte
	masked bool
	mask   [4]byte
	length uint64
}

func (f frame) control() bool { return f.op >= opClose }

// frames finds the frames in a direction, in pieces of any size. Its zero value reads
// what a server sends.
type frames struct {
	masked bool // what an agent sends is, what a server sends is not

	head    [longHead]byte
	have    int    // bytes of a head
	frame          // the one whose payload is being read
	left    uint64 // of its payload
	inside  bool   // a payload is being read
	message byte   // opcode of the message that has not ended, else 0
}

// next reads on in a head. What it read is text; whole says that the head is.
func (r *frames) next(b []byte) (rest []byte, whole bool, err error) {
	for len(b) > 0 {
		r.head[r.have] = b[0]
		r.have++
		b = b[1:]
		if r.have == 2 {
			if err := r.begin(); err != nil {
				return nil, false, err
			}
		}
		if r.have >= 2 && r.have == r.size() {
			return b, true, r.parse()
		}
	}
	return nil, false, nil
}

// size of the whole head, of which two bytes are there.
func (r *frames) size() int {
	n := 2
	switch r.head[1] & 0x7f {
	case 126:
		n += 2
	case 127:
		n += 8
	}
	if r.masked {
		n += 4
	}
	return n
}

// begin judges the first two bytes.
func (r *frames) begin() error {
	op, short := r.head[0]&0x0f, r.head[1]&0x7f
	r.frame = frame{final: r.head[0]&0x80 != 0, op: op, masked: r.masked}
	switch {
	case r.head[0]&0x70 != 0: // an extension's
		return ErrFrame
	case (r.head[1]&0x80 != 0) != r.masked:
		return ErrFrame
	case op > opBinary && op < opClose, op > opPong:
		return ErrFrame
	case r.control() && (!r.final || short > mostInPing):
		return ErrFrame
	case !r.control() && (op == opContinuation) != (r.message != 0):
		return ErrFrame
	}
	return nil
}

// parse takes the whole head apart; a length has one spelling.
func (r *frames) parse() error {
	b := r.head[2:r.have]
	switch short := r.head[1] & 0x7f; short {
	case 126:
		r.length = uint64(binary.BigEndian.Uint16(b))
		if r.length <= mostInPing {
			return ErrFrame
		}
	case 127:
		r.length = binary.BigEndian.Uint64(b)
		if r.length>>63 != 0 || r.length <= 0xffff {
			return ErrFrame
		}
	default:
		r.length = uint64(short)
	}
	if r.masked {
		copy(r.mask[:], r.head[r.have-4:r.have])
	}
	if !r.control() && r.op != opContinuation {
		r.message = r.op
	}
	r.left, r.inside = r.length, true
	return nil
}

// end is called when the payload is read.
func (r *frames) end() {
	if !r.control() && r.final {
		r.message = 0
	}
	r.have, r.inside = 0, false
}

// unmask copies a piece of the payload that comes next, in the clear.
func (r *frames) unmask(out, piece []byte) []byte {
	at := int((r.length - r.left) % 4)
	for i, c := range piece {
		out = append(out, c^r.mask[(at+i)%4])
	}
	return out
}

// appendText adds one text frame that is a whole message, masked.
func appendText(b, text []byte, mask [4]byte) []byte {
	b = append(b, 0x80|opText)
	switch n := len(text); {
	case n <= mostInPing:
		b = append(b, 0x80|byte(n))
	case n <= 0xffff:
		b = binary.BigEndian.AppendUint16(append(b, 0x80|126), uint16(n))
	default:
		b = binary.BigEndian.AppendUint64(append(b, 0x80|127), uint64(n))
	}
	b = append(b, mask[:]...)
	for i, c := range text {
		b = append(b, c^mask[i%4])
	}
	return b
}
