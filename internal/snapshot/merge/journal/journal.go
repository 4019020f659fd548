package journal

import (
	"bytes"
	"encoding/binary"
	"encoding/gob"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"time"
)

// Version is in every begin record; another is not touched.
const Version = 1

// Phase is how far a transaction came. The zero Phase is "nothing was done".
type Phase uint8

// The phases, in their order.
const (
	None   Phase = iota
	Begun        // the plan is on disk, staging may exist
	Staged       // renames may have happened
	Done         // the tree is "after"
	Closed       // staging is gone
)

// Record is one entry of a journal. Lists are cut into several records.
type Record struct {
	Begin *Begin
	Units []Unit
	Dirs  []Touched
	IDs   []Object // of units, in order, appended over records
	Phase Phase    // reached with this record; 0 for a part of the next
	When  time.Time
}

// Begin names what recovery needs before anything else.
type Begin struct {
	Version int
	Hash    string
	Undoes  string // the hash whose merge this one takes back, or ""
	Roots   []Root
}

// Root is a granted root: how to open it again, and how to know it.
type Root struct {
	Path    string
	ID      Object
	Staging string // name of the staging directory in it
}

// Writer appends to the file journal in a directory of its own, append-only:
// u32 length, u32 CRC-32 (IEEE), then one gob value. A torn end is no record.
type Writer struct{ f *os.File }

// Name is the file of a journal in its directory.
const Name = "journal"

// PartSize is how many units, directories or inodes go into one record.
const PartSize = 500

// Create begins a journal in dir, which has none.
func Create(dir string) (*Writer, error) {
	f, err := os.OpenFile(filepath.Join(dir, Name), os.O_WRONLY|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("create journal: %w", err)
	}
	return &Writer{f}, nil
}

// Reopen goes on with the journal in dir after its size bytes of whole records.
func Reopen(dir string, size int64) (*Writer, error) {
	path := filepath.Join(dir, Name)
	// What follows the last whole record is a torn one; writing after it
	// would hide the new record from every reader.
	if err := os.Truncate(path, size); err != nil {
		return nil, fmt.Errorf("cut journal: %w", err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return nil, fmt.Errorf("reopen journal: %w", err)
	}
	return &Writer{f}, nil
}

// Close leaves the journal as it is.
func (j *Writer) Close() { _ = j.f.Close() }

// Write appends r; a record that reaches a phase is on disk when it returns.
func (j *Writer) Write(r Record) error {
	r.When = time.Now()
	var body bytes.Buffer
	if err := gob.NewEncoder(&body).Encode(r); err != nil {
		return fmt.Errorf("write journal: %w", err)
	}
	frame := binary.BigEndian.AppendUint32(nil, uint32(body.Len()))
	frame = binary.BigEndian.AppendUint32(frame, crc32.ChecksumIEEE(body.Bytes()))
	if _, err := j.f.Write(append(frame, body.Bytes()...)); err != nil {
		return fmt.Errorf("write journal: %w", err)
	}
	if r.Phase == None {
		return nil
	}
	if err := j.f.Sync(); err != nil {
		return fmt.Errorf("write journal: %w", err)
	}
	return nil
}

// History is what a journal says.
type History struct {
	Begin
	Units []Unit
	Dirs  []Touched
	Phase Phase
	When  time.Time // of the last record
	Size  int64     // of the whole records
}

// maxRecord bounds what is read at once from a journal.
const maxRecord = 256 << 20

// Read is what the journal in dir says; of none, nothing.
func Read(dir string) (*History, error) {
	f, err := os.Open(filepath.Join(dir, Name))
	if errors.Is(err, os.ErrNotExist) {
		return &History{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read journal: %w", err)
	}
	defer f.Close()
	h := &History{}
	ids := 0
	for {
		r, n, err := readRecord(f)
		if err != nil {
			return nil, fmt.Errorf("read journal %s: %w", dir, err)
		}
		if n == 0 {
			return h, nil
		}
		h.Size += n
		if r.Begin != nil {
			h.Begin = *r.Begin
			if h.Version != Version {
				return nil, fmt.Errorf("read journal %s: version %d, this build writes %d", dir, h.Version, Version)
			}
		}
		h.Units = append(h.Units, r.Units...)
		h.Dirs = append(h.Dirs, r.Dirs...)
		for _, id := range r.IDs {
			if ids >= len(h.Units) {
				return nil, fmt.Errorf("read journal %s: more inodes than units", dir)
			}
			h.Units[ids].New = id
			ids++
		}
		h.Phase = max(h.Phase, r.Phase)
		h.When = r.When
	}
}

// readRecord returns n of 0 at the end or at a torn record.
func readRecord(f io.Reader) (r Record, n int64, err error) {
	var head [8]byte
	if _, err := io.ReadFull(f, head[:]); err != nil {
		return r, 0, notTorn(err)
	}
	length := binary.BigEndian.Uint32(head[:4])
	if length > maxRecord {
		return r, 0, nil
	}
	body := make([]byte, length)
	if _, err := io.ReadFull(f, body); err != nil {
		return r, 0, notTorn(err)
	}
	if crc32.ChecksumIEEE(body) != binary.BigEndian.Uint32(head[4:]) {
		return r, 0, nil
	}
	if err := gob.NewDecoder(bytes.NewReader(body)).Decode(&r); err != nil {
		return r, 0, err
	}
	return r, int64(len(head)) + int64(length), nil
}

func notTorn(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil
	}
	return err
}
