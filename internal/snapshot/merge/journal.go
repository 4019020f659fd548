package merge

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

// journalVersion is in every begin record; another is not touched.
const journalVersion = 1

// phase is how far a transaction came. The zero phase is "nothing was done".
type phase uint8

const (
	phaseNone   phase = iota
	phaseBegun        // the plan is on disk, staging may exist
	phaseStaged       // renames may have happened
	phaseDone         // the tree is "after"
	phaseClosed       // staging is gone
)

// record is one entry of a journal. Lists are cut into several records.
type record struct {
	Begin *begin
	Units []unit
	Dirs  []touched
	IDs   []objectID // of units, in order, appended over records
	Phase phase      // reached with this record; 0 for a part of the next
	When  time.Time
}

// begin names what recovery needs before anything else.
type begin struct {
	Version int
	Hash    string
	Undoes  string // the hash whose merge this one takes back, or ""
	Roots   []journalRoot
}

// journalRoot is a granted root: how to open it again, and how to know it.
type journalRoot struct {
	Path    string
	ID      objectID
	Staging string // name of the staging directory in it
}

// journal is the file journal in a directory of its own, append-only:
// u32 length, u32 CRC-32 (IEEE), then one gob value. A torn end is no record.
type journal struct{ f *os.File }

const journalName = "journal"

// partSize is how many units, directories or inodes go into one record.
const partSize = 500

func createJournal(dir string) (*journal, error) {
	f, err := os.OpenFile(filepath.Join(dir, journalName), os.O_WRONLY|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("create journal: %w", err)
	}
	return &journal{f}, nil
}

func reopenJournal(dir string, size int64) (*journal, error) {
	path := filepath.Join(dir, journalName)
	// What follows the last whole record is a torn one; writing after it
	// would hide the new record from every reader.
	if err := os.Truncate(path, size); err != nil {
		return nil, fmt.Errorf("cut journal: %w", err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return nil, fmt.Errorf("reopen journal: %w", err)
	}
	return &journal{f}, nil
}

func (j *journal) close() { _ = j.f.Close() }

// write appends r; a record that reaches a phase is on disk when it returns.
func (j *journal) write(r record) error {
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
	if r.Phase == phaseNone {
		return nil
	}
	if err := j.f.Sync(); err != nil {
		return fmt.Errorf("write journal: %w", err)
	}
	return nil
}

// history is what a journal says.
type history struct {
	begin
	Units []unit
	Dirs  []touched
	Phase phase
	When  time.Time // of the last record
	size  int64     // of the whole records
}

// maxRecord bounds what is read at once from a journal.
const maxRecord = 256 << 20

func readJournal(dir string) (*history, error) {
	f, err := os.Open(filepath.Join(dir, journalName))
	if errors.Is(err, os.ErrNotExist) {
		return &history{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read journal: %w", err)
	}
	defer f.Close()
	h := &history{}
	ids := 0
	for {
		r, n, err := readRecord(f)
		if err != nil {
			return nil, fmt.Errorf("read journal %s: %w", dir, err)
		}
		if n == 0 {
			return h, nil
		}
		h.size += n
		if r.Begin != nil {
			h.begin = *r.Begin
			if h.Version != journalVersion {
				return nil, fmt.Errorf("read journal %s: version %d, this build writes %d", dir, h.Version, journalVersion)
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
func readRecord(f io.Reader) (r record, n int64, err error) {
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
