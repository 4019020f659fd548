// Package bequest leaves open files, and a description of them, to the program that
// takes this one's place in its process (cell.md, L20a).
//
// Its laws:
//   - Files keep their numbers, which the description names; what it does not name is
//     closed with the program that left it.
//   - The description is a sealed memory file: what the heir reads is what was written.
//   - It is read strictly: another version, a field that is not known, a file that is
//     not there or is named twice leaves the heir with nothing.
package bequest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"skep.dev/skep/internal/sys"
	"skep.dev/skep/internal/sys/inplace"
)

// FD is the number of a file that was left; 0 is none.
type FD int

// Flag is the argument by which the heir finds the description.
const Flag = "--inherits"

// maxState bounds a description, in bytes.
const maxState = 64 << 20

// envelope is the description as a whole.
type envelope struct {
	V     int             `json:"v"`
	State json.RawMessage `json:"state"`
}

// Estate is what is to be left. Its files stay the caller's, and must stay open.
type Estate struct {
	files []*os.File
	err   error
}

// Leave adds a file; nil is none. An error is kept for Execute.
func (e *Estate) Leave(f *os.File) FD {
	if f == nil {
		return 0
	}
	fd, err := inplace.Number(f)
	if err == nil && fd <= 2 {
		err = fmt.Errorf("%s is a standard descriptor", f.Name())
	}
	if err != nil {
		e.err = errors.Join(e.err, err)
		return 0
	}
	e.files = append(e.files, f)
	return FD(fd)
}

// Execute has program take our place, with state, which it must read as version v. It
// returns only where that failed, and then nothing has changed.
func (e *Estate) Execute(program string, args, env []string, v int, state any) error {
	if e.err != nil {
		return fmt.Errorf("leave open files: %w", e.err)
	}
	raw, err := json.Marshal(state)
	if err == nil {
		raw, err = json.Marshal(envelope{v, raw})
	}
	if err == nil && len(raw) > maxState {
		err = fmt.Errorf("%d bytes are more than %d", len(raw), maxState)
	}
	if err != nil {
		return fmt.Errorf("describe what is left: %w", err)
	}
	memory, err := sys.SealedFile("skep-bequest", raw)
	if err != nil {
		return err
	}
	defer func() { _ = memory.Close() }()
	fd, err := inplace.Number(memory)
	if err != nil {
		return err
	}
	args = append(Own(args), Flag, strconv.Itoa(fd))
	return inplace.Execute(program, args, env, append(e.files, memory)...)
}

// Own are the arguments without what an earlier Execute added.
func Own(args []string) []string {
	var own []string
	for i := 0; i < len(args); i++ {
		if args[i] == Flag {
			i++
			continue
		}
		own = append(own, args[i])
	}
	return own
}

// Heir takes what was left.
type Heir struct {
	taken map[FD]bool
	err   error
}

// Open reads the description at a descriptor as version v into state.
func Open(fd, v int, state any) (*Heir, error) {
	memory, err := sys.InheritedPlace(fd, "skep-bequest")
	if err != nil {
		return nil, err
	}
	defer func() { _ = memory.Close() }()
	if err := sys.RequireSealed(memory); err != nil {
		return nil, err
	}
	raw, err := io.ReadAll(io.NewSectionReader(memory, 0, maxState+1))
	if err != nil {
		return nil, fmt.Errorf("read what was left: %w", err)
	}
	var whole envelope
	if err := strictly(raw, &whole); err != nil {
		return nil, err
	}
	if whole.V != v {
		return nil, fmt.Errorf("read what was left: it is of version %d, this is %d", whole.V, v)
	}
	if err := strictly(whole.State, state); err != nil {
		return nil, err
	}
	return &Heir{taken: map[FD]bool{}}, nil
}

func strictly(raw []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return fmt.Errorf("read what was left: %w", err)
	}
	if d.More() {
		return errors.New("read what was left: bytes after its end")
	}
	return nil
}

// Take gives a file that was left to the caller; nil for none, and with an error, which
// Err keeps.
func (h *Heir) Take(fd FD, name string) *os.File {
	if fd == 0 {
		return nil
	}
	f, err := (*os.File)(nil), error(nil)
	if fd <= 2 || h.taken[fd] {
		err = fmt.Errorf("descriptor %d is named twice, or is none to be left", fd)
	}
	if err == nil {
		h.taken[fd] = true
		take := sys.InheritedPlace
		if sys.SocketAt(int(fd)) {
			take = sys.Inherited
		}
		f, err = take(int(fd), name)
	}
	if err != nil {
		h.err = errors.Join(h.err, fmt.Errorf("take %s: %w", name, err))
		return nil
	}
	return f
}

// Need is Take for a file that must be there.
func (h *Heir) Need(fd FD, name string) *os.File {
	f := h.Take(fd, name)
	if f == nil && h.err == nil {
		h.err = fmt.Errorf("take %s: it was not left", name)
	}
	return f
}

// Err is what could not be taken.
func (h *Heir) Err() error { return h.err }
