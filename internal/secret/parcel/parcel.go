// Package parcel carries the values of secrets from skepd, or a connector, to a box, in a
// memory file that nobody can change any more, and from a box to the one that takes its
// place (boundary.md, B120).
//
// Its laws:
//   - A value goes into the file and out of it, and stands nowhere else: what it was
//     copied through is overwritten.
//   - A file that is not sealed, or is not wholly understood, gives nothing.
package parcel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"skep.dev/skep/internal/secret"
	"skep.dev/skep/internal/sys"
)

// Max is how many secrets one cell may have.
const Max = 64

const headSize = 1 + 8 + 4 // length of the name, Unix seconds of the end, length of the value

var errForm = errors.New("read values of secrets: not their form")

// Item is one value on its way.
type Item struct {
	Name  string
	Value []byte
	Until time.Time // zero: without end
}

// Pack makes the file, and overwrites the values. The caller owns it.
func Pack(items []Item) (*os.File, error) {
	all := Encode(items)
	defer clear(all)
	return sys.SealedFile("secrets", all)
}

// Encode writes items down, and overwrites the values. The caller overwrites the result.
func Encode(items []Item) []byte {
	size := 0
	for _, i := range items {
		size += headSize + len(i.Name) + len(i.Value)
	}
	all := make([]byte, 0, size) // at once, so that no copy is left behind
	for _, i := range items {
		until := int64(0)
		if !i.Until.IsZero() {
			until = i.Until.Unix()
		}
		all = append(all, byte(len(i.Name)))
		all = binary.BigEndian.AppendUint64(all, uint64(until))
		all = binary.BigEndian.AppendUint32(all, uint32(len(i.Value)))
		all = append(append(all, i.Name...), i.Value...)
		clear(i.Value)
	}
	return all
}

// Take is given one value of size bytes, to be read as a whole.
type Take func(name string, until time.Time, size int, value io.Reader) error

// Unpack hands on each value in a file of Pack's. It does not close f.
func Unpack(f *os.File, take Take) error {
	if err := sys.RequireSealed(f); err != nil {
		return err
	}
	return Decode(io.NewSectionReader(f, 0, 1<<40), take)
}

// Decode hands on each value.
func Decode(in io.Reader, take Take) error {
	for n := 0; ; n++ {
		var head [headSize]byte
		if _, err := io.ReadFull(in, head[:]); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil || n == Max {
			return errForm
		}
		name := make([]byte, head[0])
		size := binary.BigEndian.Uint32(head[9:])
		if _, err := io.ReadFull(in, name); err != nil || size > secret.MaxValue+2 {
			return errForm
		}
		until := time.Time{}
		if s := int64(binary.BigEndian.Uint64(head[1:])); s != 0 {
			until = time.Unix(s, 0)
		}
		value := &io.LimitedReader{R: in, N: int64(size)}
		if err := take(string(name), until, int(size), value); err != nil {
			return fmt.Errorf("take the value of secret %q: %w", name, err)
		}
		if value.N > 0 {
			return errForm
		}
	}
}
