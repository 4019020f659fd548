package secrets

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"skep.dev/skep/internal/secret"
	"skep.dev/skep/internal/sys"
)

var (
	errKind     = errors.New("it is no regular file")
	errOwner    = errors.New("it belongs to another user than the one that it was granted from")
	errReadable = errors.New("others than its owner may change it, or everybody may read it: chmod 600")
	errGone     = errors.New("the file has been removed")
)

// source is where one value is read. The caller of the run opened both files.
type source struct {
	file *os.File // what was opened first, or a variable's value in a memory file
	dir  *os.File // where the file stands; nil for a variable
	name string   // in dir
	seen state
}

// state tells one content of a source from another.
type state struct {
	dev, ino   uint64
	size       int64
	mod, inode int64 // times of content and of the rest, nanoseconds
}

// look opens what stands at the source now. The caller closes it if it is not s.file.
func (s *source) look() (f *os.File, now state, err error) {
	f = s.file
	if s.dir != nil {
		switch opened, err := sys.OpenEntry(s.dir, s.name); {
		case err == nil:
			f = opened
		case errors.Is(err, os.ErrPermission): // the user may, we may not: then what was handed over
		default:
			return nil, state{}, fmt.Errorf("open the source: %w", err)
		}
	}
	st, err := sys.StatFile(f)
	if err == nil {
		err = s.fit(&st)
	}
	if err != nil {
		s.done(f)
		return nil, state{}, err
	}
	return f, state{st.Dev, st.Ino, st.Size, st.Mtim.Nano(), st.Ctim.Nano()}, nil
}

// fit refuses a file that the source was not granted from, or that is not its owner's own.
func (s *source) fit(st *sys.FileStat) error {
	if s.dir == nil { // memory
		return nil
	}
	first, err := sys.StatFile(s.file)
	switch {
	case err != nil:
		return err
	case st.Mode&sys.ModeTypeMask != sys.ModeRegular:
		return errKind
	case st.Uid != first.Uid:
		return errOwner
	case st.Mode&0o026 != 0:
		return errReadable
	case st.Nlink == 0:
		return errGone
	}
	return nil
}

func (s *source) done(f *os.File) {
	if f != nil && f != s.file {
		_ = f.Close()
	}
}

// changed tells whether there is another content than the one that was read last, or none.
func (s *source) changed() bool {
	f, now, err := s.look()
	s.done(f)
	if err != nil {
		now = state{}
	}
	return now != s.seen
}

// read is the value and until when it is good. The caller overwrites it.
func (s *source) read() ([]byte, time.Time, error) {
	s.seen = state{}
	f, now, err := s.look()
	if err != nil {
		return nil, time.Time{}, err
	}
	defer s.done(f)
	raw := make([]byte, secret.MaxValue+3)
	n, err := io.ReadFull(io.NewSectionReader(f, 0, int64(len(raw))), raw)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		clear(raw)
		return nil, time.Time{}, fmt.Errorf("read the source: %w", err)
	}
	s.seen = now
	if err := secret.CheckValue(raw[:n]); err != nil {
		clear(raw)
		return nil, time.Time{}, err
	}
	return raw[:n], secret.Expiry(raw[:n]), nil
}

func (s *source) close() {
	_ = s.file.Close()
	if s.dir != nil {
		_ = s.dir.Close()
	}
}
