// Package terminal carries an agent's input and output between its warden and the
// user's terminal or pipes (L18, L18b).
//
// Its laws:
//   - Frames are type (1 byte), length (u32, little endian), bytes. Nobody but this
//     package touches the terminal.
//   - Whatever ends, the terminal gets back the mode it had.
//   - From a pseudo-terminal come no sequences that set the clipboard or the title
//     or make the terminal answer, unless the profile says raw (L18a).
package terminal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
	"syscall"
)

// The frames' types: client to warden are 0, 3, 4, 5 and 6. The last says that the
// agent was stopped, and back, that it is to go on.
const (
	frameStdin   = 0
	frameStdout  = 1
	frameStderr  = 2
	frameResize  = 3
	frameEOF     = 4
	frameDetach  = 5
	frameStopped = 6
)

// MaxFrame bounds a frame's bytes, in both directions (warden/serve.c).
const MaxFrame = 64 << 10

// frames writes frames, one at a time.
type frames struct {
	mu sync.Mutex
	w  io.Writer
}

func (f *frames) send(kind byte, data []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for first := true; first || len(data) > 0; first = false {
		part := data[:min(len(data), MaxFrame)]
		data = data[len(part):]
		buf := make([]byte, 5, 5+len(part))
		buf[0] = kind
		binary.LittleEndian.PutUint32(buf[1:], uint32(len(part)))
		if _, err := f.w.Write(append(buf, part...)); err != nil {
			return fmt.Errorf("write to the cell: %w", err)
		}
	}
	return nil
}

func (f *frames) resize(rows, columns uint16) error {
	var size [4]byte
	binary.LittleEndian.PutUint16(size[:], rows)
	binary.LittleEndian.PutUint16(size[2:], columns)
	return f.send(frameResize, size[:])
}

// receive hands each frame on until the warden closes the connection. One that
// closes while a frame of ours is still unread resets it (unix(7)): an end like any,
// since what it sent before comes first.
func receive(r io.Reader, stdout, stderr io.Writer, stopped func() error) error {
	buf := make([]byte, MaxFrame)
	var head [5]byte
	for {
		if n, err := io.ReadFull(r, head[:]); err != nil {
			if n == 0 && (errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET)) {
				return nil
			}
			return fmt.Errorf("read from the cell: %w", err)
		}
		n := binary.LittleEndian.Uint32(head[1:])
		if n > MaxFrame {
			return fmt.Errorf("read from the cell: a frame of %d bytes", n)
		}
		if _, err := io.ReadFull(r, buf[:n]); err != nil {
			return fmt.Errorf("read from the cell: %w", err)
		}
		out := stdout
		switch head[0] {
		case frameStdout:
		case frameStderr:
			out = stderr
		case frameStopped:
			if err := stopped(); err != nil {
				return fmt.Errorf("stop with the agent: %w", err)
			}
			continue
		default:
			return fmt.Errorf("read from the cell: a frame of type %d", head[0])
		}
		if _, err := out.Write(buf[:n]); err != nil {
			return fmt.Errorf("write the cell's output: %w", err)
		}
	}
}
