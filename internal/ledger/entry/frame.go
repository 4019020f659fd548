package entry

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"sync"
)

// MaxSize bounds one entry's canonical JSON, in bytes.
const MaxSize = 16 << 20

// HeadSize is the length of a frame's head.
const HeadSize = 8

//nolint:gochecknoglobals // a constant table, made when it is first used
var castagnoli = sync.OnceValue(func() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) })

// PutHead writes the head of the frame whose entry is payload into dst.
func PutHead(dst, payload []byte) {
	binary.LittleEndian.PutUint32(dst, uint32(len(payload)))
	binary.LittleEndian.PutUint32(dst[4:], crc32.Checksum(payload, castagnoli()))
}

// ErrTorn means that the bytes end inside a frame; ErrDamaged that a whole
// frame does not have its CRC, or a length that no frame has.
var (
	ErrTorn    = errors.New("torn frame")
	ErrDamaged = errors.New("damaged frame")
)

// Reader reads frames in order, through one buffer that grows to the largest
// entry.
type Reader struct {
	r    io.Reader
	buf  []byte
	lo   int
	hi   int
	done bool
	pos  uint64
}

// NewReader reads frames from r, whose first byte has the position pos.
func NewReader(r io.Reader, pos uint64) *Reader {
	return &Reader{r: r, buf: make([]byte, 256<<10), pos: pos}
}

// Position is where the next frame begins.
func (r *Reader) Position() uint64 { return r.pos }

// Next returns the entry of the next frame, valid until the call after. It
// returns io.EOF at the end, and an error that wraps [ErrTorn], [ErrDamaged]
// or that of the reader. With a wrong CRC it returns the bytes too, so that a
// fault can be named. After an error [Reader.Position] is that of the frame.
func (r *Reader) Next() ([]byte, error) {
	if err := r.fill(HeadSize); err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint32(r.buf[r.lo:])
	sum := binary.LittleEndian.Uint32(r.buf[r.lo+4:])
	if n == 0 || n > MaxSize {
		return nil, fmt.Errorf("%w at %d: length %d", ErrDamaged, r.pos, n)
	}
	if err := r.fill(HeadSize + int(n)); err != nil {
		return nil, err
	}
	payload := r.buf[r.lo+HeadSize : r.lo+HeadSize+int(n)]
	if crc32.Checksum(payload, castagnoli()) != sum {
		return payload, fmt.Errorf("%w at %d: its CRC is not that of its %d bytes", ErrDamaged, r.pos, n)
	}
	r.lo += HeadSize + int(n)
	r.pos += HeadSize + uint64(n)
	return payload, nil
}

// fill makes at least n bytes available from lo on.
func (r *Reader) fill(n int) error {
	for r.hi-r.lo < n {
		if r.done {
			if r.hi == r.lo {
				return io.EOF
			}
			return fmt.Errorf("%w at %d: %d of %d bytes", ErrTorn, r.pos, r.hi-r.lo, n)
		}
		if r.lo > 0 {
			copy(r.buf, r.buf[r.lo:r.hi])
			r.hi, r.lo = r.hi-r.lo, 0
		}
		if n > len(r.buf) {
			r.buf = append(r.buf[:r.hi], make([]byte, n-r.hi)...)
		}
		m, err := r.r.Read(r.buf[r.hi:])
		r.hi += m
		if errors.Is(err, io.EOF) {
			r.done = true
		} else if err != nil {
			return fmt.Errorf("read the frame at %d: %w", r.pos, err)
		}
	}
	return nil
}
