// Package outputlog reads the bounded output of a cell (L18b), which its warden
// writes while we read.
//
// The file: "skeplog1", the number of all bytes so far (u64, little endian),
// zeros up to 64; the first MiB of the output; then a ring of 7 MiB, in which
// byte n of the output, n >= 1 MiB, stands at (n - 1 MiB) mod 7 MiB.
//
// Its law: the content is the agent's. It is bytes, never a number or a path.
package outputlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// The bounds of warden/log.c.
const (
	header = 64
	Head   = 1 << 20
	Tail   = 7 << 20
	magic  = "skeplog1"
)

// chunk is how much is read at one time.
const chunk = 64 << 10

// Total is how many bytes the agent has written so far.
func Total(f io.ReaderAt) (uint64, error) {
	var head [16]byte
	if _, err := f.ReadAt(head[:], 0); err != nil {
		if errors.Is(err, io.EOF) {
			return 0, nil // the warden has not begun
		}
		return 0, fmt.Errorf("read output log: %w", err)
	}
	if string(head[:8]) != magic {
		return 0, errors.New("read output log: it has another form")
	}
	return binary.LittleEndian.Uint64(head[8:]), nil
}

// Read yields the output from byte from on and returns where it ended. Bytes that
// the ring has lost are counted before the chunk that follows them.
func Read(f io.ReaderAt, from uint64, yield func(data []byte, dropped uint64) error) (uint64, error) {
	for {
		total, err := Total(f)
		if err != nil || from >= total {
			return from, err
		}
		var dropped uint64
		if from >= Head && total > Head+Tail && from < total-Tail {
			dropped = total - Tail - from
			from += dropped
		}
		buf := make([]byte, piece(from, total))
		if _, err := f.ReadAt(buf, offset(from)); err != nil && !errors.Is(err, io.EOF) {
			return from, fmt.Errorf("read output log: %w", err)
		}
		// What was overwritten while we read is no output any more: look again.
		if now, err := Total(f); err != nil {
			return from, err
		} else if from >= Head && now > Tail && from < now-Tail && now > Head+Tail {
			continue
		}
		if err := yield(buf, dropped); err != nil {
			return from, err
		}
		from += uint64(len(buf))
	}
}

func offset(n uint64) int64 {
	if n < Head {
		return int64(header + n)
	}
	return int64(header + Head + (n-Head)%Tail)
}

// piece is how many bytes stand together from n on.
func piece(n, total uint64) uint64 {
	together := Head - n
	if n >= Head {
		together = Tail - (n-Head)%Tail
	}
	return min(together, total-n, chunk)
}
