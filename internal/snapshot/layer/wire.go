package layer

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"skep.dev/skep/internal/snapshot"
)

// Version is the first byte of every message. Both ends are of one release;
// another version is refused, not negotiated.
const Version = 1

// MaxMessage bounds one packet: an entry with two paths' worth of targets and
// two sides' worth of attributes.
const MaxMessage = 128 << 10

// kind is the second byte of a message.
type kind byte

// The closed set of messages. Zero is none.
const (
	kindWalk     kind = 1
	kindOpen     kind = 2
	kindRemove   kind = 3
	kindMeasure  kind = 4
	kindEntry    kind = 16
	kindProgress kind = 17
	kindDone     kind = 18
	kindFile     kind = 19
	kindFailure  kind = 20
)

// Code classifies a failure for a program; Text is for a person.
type Code byte

// The closed set of codes. An unknown one is read as Internal.
const (
	Internal Code = iota
	NotFound
	NotRegular // the path is no regular file, so it is not opened
	Forbidden  // the connection has not this power
)

// Failure is an error that the other end reported.
type Failure struct {
	Code Code
	Text string // bytes from the layer process: escape before showing
}

func (f *Failure) Error() string { return "layer process: " + f.Text }

// errMalformed says that a packet is no message of this version.
var errMalformed = errors.New("malformed message")

// writer appends fields; lengths are u32, all numbers big endian.
type writer struct{ b []byte }

func message(k kind) *writer { return &writer{b: []byte{Version, byte(k)}} }

func (w *writer) u8(v byte)    { w.b = append(w.b, v) }
func (w *writer) u32(v uint32) { w.b = binary.BigEndian.AppendUint32(w.b, v) }
func (w *writer) u64(v uint64) { w.b = binary.BigEndian.AppendUint64(w.b, v) }
func (w *writer) text(s string) {
	w.u32(uint32(len(s)))
	w.b = append(w.b, s...)
}

// reader takes the fields in the same order; after a failure it gives zeros
// and ok is false.
type reader struct {
	b      []byte
	failed bool
}

func (r *reader) take(n int) []byte {
	if r.failed || n < 0 || n > len(r.b) {
		r.failed = true
		return nil
	}
	out := r.b[:n]
	r.b = r.b[n:]
	return out
}

func (r *reader) u8() byte {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) u32() uint32 {
	if b := r.take(4); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

func (r *reader) u64() uint64 {
	if b := r.take(8); b != nil {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

func (r *reader) text(limit int) string {
	n := r.u32()
	if int64(n) > int64(limit) {
		r.failed = true
		return ""
	}
	return string(r.take(int(n)))
}

func (r *reader) done() error {
	if r.failed || len(r.b) != 0 {
		return errMalformed
	}
	return nil
}

// open begins the reading of a packet.
func open(packet []byte) (kind, *reader, error) {
	if len(packet) < 2 {
		return 0, nil, errMalformed
	}
	if packet[0] != Version {
		return 0, nil, fmt.Errorf("message of version %d, this build speaks %d", packet[0], Version)
	}
	return kind(packet[1]), &reader{b: packet[2:]}, nil
}

func encodeEntry(e *snapshot.Entry) []byte {
	w := message(kindEntry)
	w.u32(uint32(e.Grant))
	w.text(e.Path)
	w.u64(e.Group)
	writeTime(w, e.BaseChanged)
	w.text(e.Refused)
	writeState(w, &e.Base)
	writeState(w, &e.Layer)
	return w.b
}

// writeTime gives a zero time as zeros.
func writeTime(w *writer, t time.Time) {
	if t.IsZero() {
		t = time.Unix(0, 0)
	}
	w.u64(uint64(t.Unix()))
	w.u32(uint32(t.Nanosecond()))
}

func readTime(r *reader) (time.Time, error) {
	seconds, nanos := int64(r.u64()), r.u32()
	switch {
	case nanos > 999_999_999:
		return time.Time{}, errMalformed
	case seconds == 0 && nanos == 0:
		return time.Time{}, nil
	}
	return time.Unix(seconds, int64(nanos)), nil
}

const maxReason = 200

func decodeEntry(r *reader) (snapshot.Entry, error) {
	var e snapshot.Entry
	e.Grant = int(r.u32() & 0x7fffffff)
	e.Path = r.text(snapshot.MaxPath)
	e.Group = r.u64()
	changed, err := readTime(r)
	e.BaseChanged = changed
	e.Refused = r.text(maxReason)
	err = errors.Join(err, readState(r, &e.Base), readState(r, &e.Layer), r.done())
	if err != nil {
		return snapshot.Entry{}, err
	}
	if err := snapshot.CheckPath(e.Path); err != nil {
		return snapshot.Entry{}, err
	}
	if e.Op() == snapshot.OpNone {
		return snapshot.Entry{}, errMalformed
	}
	return e, nil
}

// Bits of the flag byte of a state.
const (
	flagOversized  = 1
	flagUnreadable = 2
)

func writeState(w *writer, s *snapshot.State) {
	w.u8(byte(s.Type))
	if s.Type == snapshot.Absent {
		return
	}
	w.u32(s.Mode)
	w.u32(s.UID)
	w.u32(s.GID)
	w.u64(uint64(s.Size))
	w.b = append(w.b, s.Digest[:]...)
	w.text(s.Target)
	w.u64(uint64(s.ModTime.Unix()))
	w.u32(uint32(s.ModTime.Nanosecond()))
	var flags byte
	if s.Oversized {
		flags |= flagOversized
	}
	if s.Unreadable {
		flags |= flagUnreadable
	}
	w.u8(flags)
	w.u32(uint32(len(s.Xattrs)))
	for _, x := range s.Xattrs {
		w.text(x.Name)
		w.text(string(x.Value))
	}
}

func readState(r *reader, s *snapshot.State) error {
	s.Type = snapshot.Type(r.u8())
	if s.Type == snapshot.Absent {
		return nil
	}
	s.Mode, s.UID, s.GID = r.u32(), r.u32(), r.u32()
	s.Size = int64(r.u64())
	copy(s.Digest[:], r.take(len(s.Digest)))
	s.Target = r.text(snapshot.MaxPath + 200)
	seconds, nanos := int64(r.u64()), r.u32()
	s.ModTime = time.Unix(seconds, int64(nanos))
	flags := r.u8()
	s.Oversized, s.Unreadable = flags&flagOversized != 0, flags&flagUnreadable != 0
	count := r.u32()
	total := 0
	if count > snapshot.MaxXattrs {
		return errMalformed
	}
	for i := range int(count) {
		x := snapshot.Xattr{Name: r.text(255), Value: []byte(r.text(snapshot.MaxXattrTotal))}
		total += len(x.Name) + len(x.Value)
		if r.failed || total > snapshot.MaxXattrTotal || (i > 0 && s.Xattrs[i-1].Name >= x.Name) {
			return errMalformed
		}
		s.Xattrs = append(s.Xattrs, x)
	}
	if r.failed || !sane(s) || nanos > 999_999_999 || flags > flagOversized|flagUnreadable {
		return errMalformed
	}
	return nil
}

// sane refuses a state that no object can have.
func sane(s *snapshot.State) bool {
	var zero [32]byte
	hasDigest := s.Type == snapshot.File || s.Type == snapshot.Symlink
	switch {
	case !s.Type.Valid(), s.Mode > 0o7777, s.Size < 0:
		return false
	case (s.Target != "") != (s.Type == snapshot.Symlink):
		return false
	case !hasDigest && (s.Digest != zero || s.Size != 0):
		return false
	case s.Oversized && len(s.Xattrs) > 0:
		return false
	case s.Unreadable && s.Digest != zero:
		return false
	}
	for _, x := range s.Xattrs {
		if len(x.Name) <= len("user.") || x.Name[:len("user.")] != "user." {
			return false
		}
	}
	return true
}
