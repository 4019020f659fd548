// Package cells keeps the record of each cell in its own file, so that a daemon
// that starts again finds every cell that there was (L20).
//
// Its laws:
//   - The ledger has start and end of a cell, durable before they are told; here they
//     are written after it (decision 0030). Any other change is on disk before it is told.
//   - A record is replaced as a whole: written beside, synced, renamed, and the
//     directory synced. A crash leaves the old or the new one; a first one that is whole
//     gets its name at the next start.
//   - What says that a cell is dropped needs no room on the disk.
//   - Reading is strict: a file that is not a record of this version is an error,
//     never an empty cell.
package cells

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"skep.dev/skep/internal/sys/durable"
)

// State is where in its life a cell is (cell.md, "Life").
type State string

// The states. The zero State is none.
const (
	Declared State = "declared"
	Building State = "building"
	Running  State = "running"
	Stopping State = "stopping"
	Stopped  State = "stopped"
	Failed   State = "failed"
	Merged   State = "merged"
	Dropped  State = "dropped"
	Undone   State = "undone" // a merge was taken back, and the layer had gone with it
)

// Ended tells whether no process of the cell can be left.
func (s State) Ended() bool {
	switch s {
	case Stopped, Failed, Merged, Dropped, Undone:
		return true
	case Declared, Building, Running, Stopping:
	}
	return false
}

// HasLayer tells whether what the cell wrote is still there.
func (s State) HasLayer() bool {
	return s != Merged && s != Dropped && s != Undone && s != Failed
}

// Grant is one granted path as the cell had it.
type Grant struct {
	Path     string `json:"path"`
	Writable bool   `json:"writable,omitempty"`
	Layer    int    `json:"layer"` // index of a writable grant's layer, else -1
	File     bool   `json:"file,omitempty"`
}

// Cause is why a cell ended.
type Cause struct {
	Word   string `json:"word,omitempty"`   // of the ledger's cell.stopped
	Budget string `json:"budget,omitempty"` // the budget's name, with Word budget
	Limit  int64  `json:"limit,omitempty"`  // in its smallest unit
	Peak   int64  `json:"peak,omitempty"`
	Detail string `json:"detail,omitempty"` // a sentence
}

// String is the form of the API: "exit", "budget: wall", "failed: ...".
func (c Cause) String() string {
	switch {
	case c.Budget != "":
		return c.Word + ": " + c.Budget
	case c.Word == "failed" && c.Detail != "":
		return c.Word + ": " + c.Detail
	}
	return c.Word
}

// Record is all that is kept of a cell.
type Record struct {
	V             int       `json:"v"`
	ID            string    `json:"id"`
	Name          string    `json:"name,omitempty"`
	State         State     `json:"state"`
	UID           uint32    `json:"uid"` // who started it
	Argv          []string  `json:"argv"`
	WorkingDir    string    `json:"working_dir"`
	Profile       string    `json:"profile"` // the effective text
	ProfileName   string    `json:"profile_name"`
	ProfileDigest string    `json:"profile_digest"`
	Rules         []string  `json:"rules"` // path rights by real path, canonical: the difference is judged by them
	Grants        []Grant   `json:"grants"`
	Unenforced    []string  `json:"unenforced,omitempty"`
	Created       time.Time `json:"created,omitzero"`
	Started       time.Time `json:"started,omitzero"`
	Stopped       time.Time `json:"stopped,omitzero"`
	ExitCode      int       `json:"exit_code"`
	Cause         Cause     `json:"cause,omitzero"`
	Allowed       int64     `json:"allowed"` // crossings
	Refused       int64     `json:"refused"`
	FilesChanged  int64     `json:"files_changed"`   // in the layer at the end, -1 if not counted
	Guest         *Guest    `json:"guest,omitempty"` // another runtime runs it
}

// Guest is an agent that another runtime runs, as its connector named it.
type Guest struct {
	Session    string  `json:"session"` // the connector's
	Agent      string  `json:"agent,omitempty"`
	ExternalID string  `json:"external_id,omitempty"`
	Identity   string  `json:"identity"` // verified, unverified or none
	Listener   string  `json:"listener"`
	Generation uint64  `json:"generation"`
	Slice      *uint32 `json:"pool_slice,omitempty"`
}

// HasLayer tells whether what the cell wrote is here.
func (r Record) HasLayer() bool { return r.Guest == nil && r.State.HasLayer() }

// version of the file's form.
const version = 1

const fileName = "cell.json"

// unfinished marks a record that is being written.
const unfinished = ".new"

func read(dir, name string) (*Record, error) {
	raw, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	var r Record
	if err := d.Decode(&r); err != nil {
		return nil, fmt.Errorf("read record of cell %s: %w", filepath.Base(dir), err)
	}
	if r.V != version || r.ID != filepath.Base(dir) {
		return nil, fmt.Errorf("read record of cell %s: it is of version %d and cell %q", filepath.Base(dir), r.V, r.ID)
	}
	return &r, nil
}

// write replaces the record in dir.
func write(dir string, r *Record) error {
	f, err := begin(dir, r)
	if err != nil {
		return err
	}
	if err := commit(dir, f); err != nil {
		return err
	}
	return removeIfThere(filepath.Join(dir, droppedName))
}

// begin writes a record beside the one that is there.
func begin(dir string, r *Record) (*os.File, error) {
	r.V = version
	raw, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return nil, fmt.Errorf("encode record of cell %s: %w", r.ID, err)
	}
	f, err := os.OpenFile(filepath.Join(dir, fileName+unfinished), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("write record of cell %s: %w", r.ID, err)
	}
	if _, err := f.Write(append(raw, '\n')); err != nil {
		return nil, failed(dir, errors.Join(err, f.Close()))
	}
	return f, nil
}

// commitFirst makes a cell's first record durable as it is written, since the next start
// gives it its name where a crash does not: that would be one more commit of the file
// system's journal, which a start waits for.
func commitFirst(dir string, f *os.File) error {
	err := errors.Join(f.Sync(), f.Close())
	if err == nil {
		err = errors.Join(durable.SyncDir(dir), durable.SyncDir(filepath.Dir(dir)))
	}
	path := filepath.Join(dir, fileName)
	if err == nil {
		err = os.Rename(path+unfinished, path)
	}
	if err != nil {
		return failed(dir, err)
	}
	return nil
}

// commit makes what begin wrote durable, and the record.
func commit(dir string, f *os.File) error {
	err := errors.Join(f.Sync(), f.Close())
	if err == nil {
		err = rename(dir)
	}
	if err != nil {
		return failed(dir, err)
	}
	return nil
}

func rename(dir string) error {
	path := filepath.Join(dir, fileName)
	if err := os.Rename(path+unfinished, path); err != nil {
		return err
	}
	return durable.SyncDir(dir)
}

func failed(dir string, err error) error {
	return errors.Join(fmt.Errorf("write record of cell %s: %w", filepath.Base(dir), err), removeIfThere(filepath.Join(dir, fileName+unfinished)))
}

// finish ends a write that a crash cut off: of a cell's first record, if all of it is
// there, by giving it its name; of a later one by removing it.
func finish(dir string) error {
	if _, err := os.Lstat(filepath.Join(dir, fileName)); errors.Is(err, fs.ErrNotExist) {
		if _, err := read(dir, fileName+unfinished); err == nil {
			return rename(dir)
		}
	} else if err == nil {
		if err := removeIfThere(filepath.Join(dir, droppedName)); err != nil {
			return err
		}
	}
	return removeIfThere(filepath.Join(dir, fileName+unfinished))
}

func removeIfThere(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
