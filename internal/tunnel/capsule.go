package tunnel

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Bounds of what one capsule holds (B44, B150).
const (
	MaxPayload = 65_527 // of a UDP datagram over IPv6, in bytes
	MaxCapsule = 65_536 // of a capsule's value, in bytes
)

// ErrCapsuleTooLarge ends a stream: nothing of the capsule was read.
var ErrCapsuleTooLarge = errors.New("capsule larger than 65,536 bytes")

// capsuleDatagram is the type of RFC 9297, section 3.5; context 0 is a UDP payload
// (RFC 9298, section 5).
const (
	capsuleDatagram = 0
	contextPayload  = 0
)

// Datagrams reads the UDP payloads of a stream of capsules.
type Datagrams struct {
	r   *bufio.Reader
	buf []byte
}

// NewDatagrams reads from r.
func NewDatagrams(r *bufio.Reader) *Datagrams { return &Datagrams{r: r} }

// Next is the next payload, valid until the call after. Capsules of another type and
// datagrams of another context are skipped. io.EOF is an end between two capsules.
func (d *Datagrams) Next() ([]byte, error) {
	for {
		kind, _, err := readVarint(d.r)
		if err != nil {
			return nil, err
		}
		length, _, err := readVarint(d.r)
		if err != nil {
			return nil, inside(err)
		}
		if length > MaxCapsule {
			return nil, ErrCapsuleTooLarge
		}
		if kind != capsuleDatagram {
			if err := skip(d.r, length); err != nil {
				return nil, err
			}
			continue
		}
		context, n, err := readVarint(d.r)
		if err != nil {
			return nil, inside(err)
		}
		if uint64(n) > length {
			return nil, fmt.Errorf("datagram capsule of %d bytes ends in its context", length)
		}
		length -= uint64(n)
		if context != contextPayload || length > MaxPayload {
			if err := skip(d.r, length); err != nil {
				return nil, err
			}
			continue
		}
		if d.buf == nil {
			d.buf = make([]byte, MaxPayload)
		}
		if _, err := io.ReadFull(d.r, d.buf[:length]); err != nil {
			return nil, inside(err)
		}
		return d.buf[:length], nil
	}
}

func skip(r *bufio.Reader, n uint64) error {
	if _, err := r.Discard(int(n)); err != nil {
		return inside(err)
	}
	return nil
}

// inside is the error of a capsule that was begun.
func inside(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// AppendDatagram appends the capsule of one payload, of at most MaxPayload bytes, to b.
func AppendDatagram(b, payload []byte) []byte {
	b = appendVarint(b, capsuleDatagram)
	b = appendVarint(b, uint64(len(payload))+1)
	b = appendVarint(b, contextPayload)
	return append(b, payload...)
}

// readVarint reads a variable-length integer (RFC 9000, section 16) and says how many
// bytes it took.
func readVarint(r *bufio.Reader) (v uint64, n int, err error) {
	first, err := r.ReadByte()
	if err != nil {
		return 0, 0, err
	}
	n = 1 << (first >> 6)
	v = uint64(first & 0x3f)
	for range n - 1 {
		b, err := r.ReadByte()
		if err != nil {
			return 0, 0, inside(err)
		}
		v = v<<8 | uint64(b)
	}
	return v, n, nil
}

func appendVarint(b []byte, v uint64) []byte {
	switch {
	case v < 1<<6:
		return append(b, byte(v))
	case v < 1<<14:
		return binary.BigEndian.AppendUint16(b, uint16(v)|1<<14)
	case v < 1<<30:
		return binary.BigEndian.AppendUint32(b, uint32(v)|2<<30)
	}
	return binary.BigEndian.AppendUint64(b, v|3<<62)
}
