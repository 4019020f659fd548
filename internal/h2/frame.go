package h2

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Frame types and flags (RFC 9113, section 6).
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

	settingTable  = 1
	settingPush   = 2
	settingWindow = 4

	codeNone    = 0
	codeCancel  = 8
	frameHead   = 9
	maxFrame    = 16 << 10 // of both sides; nobody is told another
	firstWindow = 65535    // of a connection and of a stream, before anybody changed it
)

// preface opens a connection: then come our settings, that nothing may be pushed
// and that each head must be complete in itself.
const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

var errFrame = errors.New("malformed HTTP/2 frame")

// frame is one frame; its payload is good until the next is read.
type frame struct {
	kind, flags byte
	stream      uint32
	payload     []byte
}

func (f frame) has(flag byte) bool { return f.flags&flag != 0 }

// readFrame reads one frame into buf, which has maxFrame bytes.
func readFrame(r io.Reader, buf []byte) (frame, error) {
	var head [frameHead]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return frame{}, err
	}
	n := int(head[0])<<16 | int(head[1])<<8 | int(head[2])
	if n > maxFrame {
		return frame{}, fmt.Errorf("%w: %d bytes", errFrame, n)
	}
	f := frame{kind: head[3], flags: head[4], stream: binary.BigEndian.Uint32(head[5:]) & (1<<31 - 1), payload: buf[:n]}
	_, err := io.ReadFull(r, f.payload)
	return f, err
}

// content is the payload of DATA or HEADERS without padding and priority.
func (f frame) content() ([]byte, error) {
	b, pad := f.payload, 0
	if f.has(flagPadded) {
		if len(b) == 0 {
			return nil, errFrame
		}
		b, pad = b[1:], int(b[0])
	}
	if f.kind == frameHeaders && f.has(flagPriority) {
		if len(b) < 5 {
			return nil, errFrame
		}
		b = b[5:]
	}
	if pad > len(b) {
		return nil, errFrame
	}
	return b[:len(b)-pad], nil
}

// appendFrame adds one frame to b.
func appendFrame(b []byte, kind, flags byte, stream uint32, payload []byte) []byte {
	n := len(payload)
	b = append(b, byte(n>>16), byte(n>>8), byte(n), kind, flags)
	b = binary.BigEndian.AppendUint32(b, stream)
	return append(b, payload...)
}

// appendNumber adds a frame whose payload is one number: an error code or an increment.
func appendNumber(b []byte, kind byte, stream, number uint32) []byte {
	return appendFrame(b, kind, 0, stream, binary.BigEndian.AppendUint32(nil, number))
}
