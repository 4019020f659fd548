// Package frame is the framing of HTTP/2 (RFC 9113, section 4): what a connection of
// skepd and a box, and one that a box carries, have in common.
//
// Its laws:
//   - A frame over 16 KiB is refused before its payload is read: nobody is told a larger size.
//   - Whatever bytes a peer sends, they are frames or a Fault.
package frame

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Frame types, flags, settings and error codes (RFC 9113, sections 6 and 7; RFC 8441).
const (
	Data         = 0
	Headers      = 1
	Reset        = 3
	Settings     = 4
	Push         = 5
	Ping         = 6
	GoAway       = 7
	WindowUpdate = 8
	Continuation = 9

	EndStream  = 1 // of DATA and HEADERS
	Ack        = 1 // of SETTINGS and PING
	EndHeaders = 4
	Padded     = 8
	Priority   = 32

	SettingTable    = 1
	SettingPush     = 2
	SettingStreams  = 3
	SettingWindow   = 4
	SettingHeadList = 6
	SettingConnect  = 8

	CodeNone     = 0
	CodeProtocol = 1
	CodeFlow     = 3
	CodeRefused  = 7
	CodeCancel   = 8
	CodeCalm     = 11

	MaxSettings = 32 // in a frame

	HeadSize    = 9
	MaxSize     = 16 << 10 // of all sides; nobody is told another
	FirstWindow = 65535    // of a connection and of a stream, before anybody changed it
	MaxWindow   = 0x7fffffff
)

// Preface opens a connection, from its client.
const Preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// Fault is what a peer did that ends the connection, with the code to tell it.
type Fault struct {
	Code uint32
	What string
}

func (f *Fault) Error() string { return "HTTP/2: " + f.What }

// Fail is a Fault of that code.
func Fail(code uint32, what string) error { return &Fault{code, what} }

// Broken is a Fault against the protocol.
func Broken(what string) error { return Fail(CodeProtocol, what) }

// Frame is one frame; its payload is good until the next is read.
type Frame struct {
	Kind, Flags byte
	Stream      uint32
	Payload     []byte
}

// Has reports whether a flag is set.
func (f Frame) Has(flag byte) bool { return f.Flags&flag != 0 }

// Reader reads the frames of one peer.
type Reader struct {
	From io.Reader
	buf  []byte
}

// Next reads one frame.
func (r *Reader) Next() (Frame, error) {
	var head [HeadSize]byte
	if _, err := io.ReadFull(r.From, head[:]); err != nil {
		return Frame{}, err
	}
	n := int(head[0])<<16 | int(head[1])<<8 | int(head[2])
	if n > MaxSize {
		return Frame{}, Broken(fmt.Sprintf("a frame of %d bytes", n))
	}
	if n > len(r.buf) { // most heads are small, and an idle connection has nothing else
		r.buf = make([]byte, min(max(2*n, 1<<10), MaxSize))
	}
	f := Frame{Kind: head[3], Flags: head[4], Stream: binary.BigEndian.Uint32(head[5:]) & MaxWindow, Payload: r.buf[:n]}
	if _, err := io.ReadFull(r.From, f.Payload); err != nil {
		return f, errors.Join(io.ErrUnexpectedEOF, err)
	}
	return f, nil
}

// Block reads the rest of a header block that f begins, of so many bytes at most. What it
// returns is its own.
func (r *Reader) Block(f Frame, most int) ([]byte, error) {
	part, err := f.Content()
	if err != nil {
		return nil, err
	}
	block := append([]byte(nil), part...)
	for stream := f.Stream; !f.Has(EndHeaders); block = append(block, f.Payload...) {
		if f, err = r.Next(); err != nil {
			return nil, err
		}
		switch {
		case f.Kind != Continuation, f.Stream != stream:
			return nil, Broken("a header block that breaks off")
		case len(f.Payload) == 0 && !f.Has(EndHeaders), len(block)+len(f.Payload) > most:
			return nil, Fail(CodeCalm, "a header block without end")
		}
	}
	return block, nil
}

// Content is the payload of DATA or HEADERS without padding and priority.
func (f Frame) Content() ([]byte, error) {
	b, pad := f.Payload, 0
	if f.Has(Padded) {
		if len(b) == 0 {
			return nil, Broken("padding without a length")
		}
		b, pad = b[1:], int(b[0])
	}
	if f.Kind == Headers && f.Has(Priority) {
		if len(b) < 5 {
			return nil, Broken("a priority that is cut")
		}
		b = b[5:]
	}
	if pad > len(b) {
		return nil, Broken("more padding than payload")
	}
	return b[:len(b)-pad], nil
}

// Number is the payload of RESET and WINDOW_UPDATE.
func (f Frame) Number() (uint32, error) {
	if len(f.Payload) != 4 {
		return 0, Broken("a number that is none")
	}
	return binary.BigEndian.Uint32(f.Payload), nil
}

// Append adds one frame to b.
func Append(b []byte, kind, flags byte, stream uint32, payload []byte) []byte {
	n := len(payload)
	b = append(b, byte(n>>16), byte(n>>8), byte(n), kind, flags)
	b = binary.BigEndian.AppendUint32(b, stream)
	return append(b, payload...)
}

// AppendNumber adds a frame whose payload is one number.
func AppendNumber(b []byte, kind byte, stream, number uint32) []byte {
	return Append(b, kind, 0, stream, binary.BigEndian.AppendUint32(nil, number))
}

// AppendBlock adds a header block in as many frames as it needs.
func AppendBlock(b []byte, flags byte, stream uint32, block []byte) []byte {
	kind := byte(Headers)
	for len(block) > MaxSize {
		b = Append(b, kind, flags, stream, block[:MaxSize])
		kind, flags, block = Continuation, 0, block[MaxSize:]
	}
	return Append(b, kind, flags|EndHeaders, stream, block)
}

// Setting is one parameter of a SETTINGS frame.
type Setting struct {
	ID    uint16
	Value uint32
}

// Settings are what a SETTINGS frame says.
func (f Frame) Settings() (all []Setting, err error) {
	if len(f.Payload)%6 != 0 || len(f.Payload) > MaxSettings*6 || f.Has(Ack) && len(f.Payload) > 0 {
		return nil, Broken("settings that are none")
	}
	for b := f.Payload; len(b) > 0; b = b[6:] {
		s := Setting{binary.BigEndian.Uint16(b), binary.BigEndian.Uint32(b[2:])}
		if s.ID == SettingWindow && s.Value > MaxWindow {
			return nil, Fail(CodeFlow, "a window that is too large")
		}
		all = append(all, s)
	}
	return all, nil
}

// AppendSettings adds a SETTINGS frame.
func AppendSettings(b []byte, all []Setting) []byte {
	var payload []byte
	for _, s := range all {
		payload = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint16(payload, s.ID), s.Value)
	}
	return Append(b, Settings, 0, 0, payload)
}
