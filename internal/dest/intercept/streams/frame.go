package streams

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Frame types, flags, settings and error codes (RFC 9113, sections 6 and 7; RFC 8441).
const (
	frameData         = 0
	frameHeaders      = 1
	frameReset        = 3
	frameSettings     = 4
	framePush         = 5
	framePing         = 6
	frameGoAway       = 7
	frameWindow       = 8
	frameContinuation = 9

	flagEndStream  = 1 // of DATA and HEADERS
	flagAck        = 1 // of SETTINGS and PING
	flagEndHeaders = 4
	flagPadded     = 8
	flagPriority   = 32

	settingTable    = 1
	settingPush     = 2
	settingStreams  = 3
	settingWindow   = 4
	settingHeadList = 6
	settingConnect  = 8

	codeNone     = 0
	codeProtocol = 1
	codeFlow     = 3
	codeRefused  = 7
	codeCancel   = 8
	codeCalm     = 11

	frameHead   = 9
	maxFrame    = 16 << 10 // of all sides; nobody is told another
	firstWindow = 65535    // of a connection and of a stream, before anybody changed it
	maxWindow   = 0x7fffffff
)

// preface opens a connection, from its client.
const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// fault is what a peer did that ends the connection, with the code to tell it.
type fault struct {
	code uint32
	what string
}

func (f *fault) Error() string { return "HTTP/2: " + f.what }

func broken(what string) error { return &fault{codeProtocol, what} }

// frame is one frame; its payload is good until the next is read.
type frame struct {
	kind, flags byte
	stream      uint32
	payload     []byte
}

func (f frame) has(flag byte) bool { return f.flags&flag != 0 }

// reader reads the frames of one peer.
type reader struct {
	from io.Reader
	buf  []byte
}

func (r *reader) next() (frame, error) {
	var head [frameHead]byte
	if _, err := io.ReadFull(r.from, head[:]); err != nil {
		return frame{}, err
	}
	n := int(head[0])<<16 | int(head[1])<<8 | int(head[2])
	if n > maxFrame {
		return frame{}, broken(fmt.Sprintf("a frame of %d bytes", n))
	}
	if n > len(r.buf) { // most heads are small, and an idle connection has nothing else
		r.buf = make([]byte, min(max(2*n, 1<<10), maxFrame))
	}
	f := frame{kind: head[3], flags: head[4], stream: binary.BigEndian.Uint32(head[5:]) & maxWindow, payload: r.buf[:n]}
	if _, err := io.ReadFull(r.from, f.payload); err != nil {
		return f, errors.Join(io.ErrUnexpectedEOF, err)
	}
	return f, nil
}

// block reads the rest of a header block that f begins, of so many bytes at most. What it
// returns is its own.
func (r *reader) block(f frame, most int) ([]byte, error) {
	part, err := f.content()
	if err != nil {
		return nil, err
	}
	block := append([]byte(nil), part...)
	for stream := f.stream; !f.has(flagEndHeaders); block = append(block, f.payload...) {
		if f, err = r.next(); err != nil {
			return nil, err
		}
		switch {
		case f.kind != frameContinuation, f.stream != stream:
			return nil, broken("a header block that breaks off")
		case len(f.payload) == 0 && !f.has(flagEndHeaders), len(block)+len(f.payload) > most:
			return nil, &fault{codeCalm, "a header block without end"}
		}
	}
	return block, nil
}

// content is the payload of DATA or HEADERS without padding and priority.
func (f frame) content() ([]byte, error) {
	b, pad := f.payload, 0
	if f.has(flagPadded) {
		if len(b) == 0 {
			return nil, broken("padding without a length")
		}
		b, pad = b[1:], int(b[0])
	}
	if f.kind == frameHeaders && f.has(flagPriority) {
		if len(b) < 5 {
			return nil, broken("a priority that is cut")
		}
		b = b[5:]
	}
	if pad > len(b) {
		return nil, broken("more padding than payload")
	}
	return b[:len(b)-pad], nil
}

// number is the payload of RESET and WINDOW_UPDATE.
func (f frame) number() (uint32, error) {
	if len(f.payload) != 4 {
		return 0, broken("a number that is none")
	}
	return binary.BigEndian.Uint32(f.payload), nil
}

// appendFrame adds one frame to b.
func appendFrame(b []byte, kind, flags byte, stream uint32, payload []byte) []byte {
	n := len(payload)
	b = append(b, byte(n>>16), byte(n>>8), byte(n), kind, flags)
	b = binary.BigEndian.AppendUint32(b, stream)
	return append(b, payload...)
}

// appendNumber adds a frame whose payload is one number.
func appendNumber(b []byte, kind byte, stream, number uint32) []byte {
	return appendFrame(b, kind, 0, stream, binary.BigEndian.AppendUint32(nil, number))
}

// appendBlock adds a header block in as many frames as it needs.
func appendBlock(b []byte, flags byte, stream uint32, block []byte) []byte {
	kind := byte(frameHeaders)
	for len(block) > maxFrame {
		b = appendFrame(b, kind, flags, stream, block[:maxFrame])
		kind, flags, block = frameContinuation, 0, block[maxFrame:]
	}
	return appendFrame(b, kind, flags|flagEndHeaders, stream, block)
}

// setting is one parameter of a SETTINGS frame.
type setting struct {
	id    uint16
	value uint32
}

func (f frame) settings() (all []setting, err error) {
	if len(f.payload)%6 != 0 || len(f.payload) > maxSettings*6 || f.has(flagAck) && len(f.payload) > 0 {
		return nil, broken("settings that are none")
	}
	for b := f.payload; len(b) > 0; b = b[6:] {
		s := setting{binary.BigEndian.Uint16(b), binary.BigEndian.Uint32(b[2:])}
		if s.id == settingWindow && s.value > maxWindow {
			return nil, &fault{codeFlow, "a window that is too large"}
		}
		all = append(all, s)
	}
	return all, nil
}

func appendSettings(b []byte, all []setting) []byte {
	var payload []byte
	for _, s := range all {
		payload = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint16(payload, s.id), s.value)
	}
	return appendFrame(b, frameSettings, 0, 0, payload)
}
