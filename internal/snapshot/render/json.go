package render

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"unicode/utf16"
	"unicode/utf8"

	"skep.dev/skep/internal/snapshot"
)

// The JSON form. Bytes that are not UTF-8 cannot be JSON text, so a path or a
// target of such comes a second time as base64 in ..._bytes, which then counts.
type jsonDiff struct {
	Hash    string      `json:"hash"`
	Grants  []string    `json:"grants"`
	Entries []jsonEntry `json:"entries"`
}

type jsonEntry struct {
	Path      string     `json:"path"`
	PathBytes []byte     `json:"path_bytes,omitempty"`
	Grant     int        `json:"grant"`
	Op        string     `json:"op"`
	Changes   []string   `json:"changes"`
	Base      *jsonState `json:"base,omitempty"`
	Layer     *jsonState `json:"layer,omitempty"`
	Merged    string     `json:"merged_mode,omitempty"`
	Active    string     `json:"active,omitempty"`
	Held      bool       `json:"held,omitempty"`
	Refused   string     `json:"refused,omitempty"`
	Conflict  bool       `json:"conflict,omitempty"` // changed in the tree since the cell started
	// A removal and an addition of the same bytes name each other; both stay what they are.
	RenamedTo        string `json:"renamed_to,omitempty"`
	RenamedToBytes   []byte `json:"renamed_to_bytes,omitempty"`
	RenamedFrom      string `json:"renamed_from,omitempty"`
	RenamedFromBytes []byte `json:"renamed_from_bytes,omitempty"`
}

type jsonState struct {
	Type        string            `json:"type"`
	Mode        string            `json:"mode"` // octal, as chmod takes it
	UID         uint32            `json:"uid"`
	GID         uint32            `json:"gid"`
	Size        int64             `json:"size"`
	SHA256      string            `json:"sha256,omitempty"`
	Target      string            `json:"target,omitempty"`
	TargetBytes []byte            `json:"target_bytes,omitempty"`
	Xattrs      map[string][]byte `json:"xattrs,omitempty"`
	Oversized   bool              `json:"xattrs_oversized,omitempty"`
	Unreadable  bool              `json:"unreadable,omitempty"`
}

// JSON writes the difference for a program: one object, in plain ASCII, so
// that it is also safe on a terminal (L18a).
func JSON(w io.Writer, d *snapshot.Difference) error {
	out := jsonDiff{Hash: d.Hash, Grants: d.Grants, Entries: make([]jsonEntry, 0, len(d.Entries))}
	renames := d.Renames()
	for i := range d.Entries {
		e := &d.Entries[i]
		j := jsonEntry{
			Path: d.FullPath(e), PathBytes: unlessText(d.FullPath(e)), Grant: e.Grant, Op: e.Op().String(),
			Base: stateOf(&e.Base), Layer: stateOf(&e.Layer), Active: e.Active, Held: e.Held, Refused: e.Refused, Conflict: e.Conflict,
		}
		for _, op := range e.Changes() {
			j.Changes = append(j.Changes, op.String())
		}
		if e.Layer.Type != snapshot.Absent && e.Layer.Type != snapshot.Symlink {
			j.Merged = fmt.Sprintf("%04o", snapshot.MergedMode(e.Base, e.Layer))
		}
		if to, is := renames.To[i]; is {
			j.RenamedTo = d.FullPath(&d.Entries[to])
			j.RenamedToBytes = unlessText(j.RenamedTo)
		}
		if from, is := renames.From[i]; is {
			j.RenamedFrom = d.FullPath(&d.Entries[from])
			j.RenamedFromBytes = unlessText(j.RenamedFrom)
		}
		out.Entries = append(out.Entries, j)
	}
	text, err := json.MarshalIndent(out, "", "  ")
	if err != nil {
		return fmt.Errorf("write difference as JSON: %w", err)
	}
	_, err = w.Write(append(ascii(text), '\n'))
	return err
}

func unlessText(s string) []byte {
	if utf8.ValidString(s) {
		return nil
	}
	return []byte(s)
}

func stateOf(s *snapshot.State) *jsonState {
	if s.Type == snapshot.Absent {
		return nil
	}
	j := &jsonState{
		Type: s.Type.String(), Mode: fmt.Sprintf("%04o", s.Mode), UID: s.UID, GID: s.GID, Size: s.Size,
		Target: s.Target, TargetBytes: unlessText(s.Target), Oversized: s.Oversized, Unreadable: s.Unreadable,
	}
	if (s.Type == snapshot.File || s.Type == snapshot.Symlink) && !s.Unreadable {
		j.SHA256 = hex.EncodeToString(s.Digest[:])
	}
	for _, x := range s.Xattrs {
		if j.Xattrs == nil {
			j.Xattrs = map[string][]byte{}
		}
		j.Xattrs[x.Name] = x.Value
	}
	return j
}

// ascii writes what lies outside ASCII as \u escapes, which JSON allows
// wherever such a byte can stand.
func ascii(text []byte) []byte {
	var out bytes.Buffer
	for len(text) > 0 {
		r, n := utf8.DecodeRune(text)
		text = text[n:]
		switch {
		case r < 0x7f:
			out.WriteRune(r)
		case r <= 0xffff:
			fmt.Fprintf(&out, `\u%04x`, r)
		default:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&out, `\u%04x\u%04x`, high, low)
		}
	}
	return out.Bytes()
}
