// Package diffwire translates the entries of a difference to the API's messages
// and back, for skepd and for skep alike.
//
// Its law: what goes there and comes back is the same entry, so that both ends
// find the same hash.
package diffwire

import (
	"fmt"
	"time"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/internal/snapshot"
)

// Message is an entry as the API carries it.
func Message(e *snapshot.Entry) *skepv1.DiffEntry {
	return &skepv1.DiffEntry{
		Grant: int32(e.Grant), Path: []byte(e.Path), Op: e.Op().String(), Base: side(&e.Base), Layer: side(&e.Layer),
		Refused: e.Refused, Active: e.Active != "", ActiveWhy: e.Active, Held: e.Held, Group: e.Group, Conflict: e.Conflict,
	}
}

func side(s *snapshot.State) *skepv1.FileSide {
	if s.Type == snapshot.Absent {
		return nil
	}
	f := &skepv1.FileSide{
		Type: s.Type.String(), Mode: s.Mode, Uid: s.UID, Gid: s.GID, Size: s.Size, Target: []byte(s.Target),
		Oversized: s.Oversized, Unreadable: s.Unreadable,
	}
	if s.Digest != [32]byte{} {
		f.Sha256 = s.Digest[:]
	}
	if !s.ModTime.IsZero() {
		f.MtimeNs = s.ModTime.UnixNano()
	}
	for _, x := range s.Xattrs {
		f.Xattrs = append(f.Xattrs, &skepv1.Xattr{Name: []byte(x.Name), Value: x.Value})
	}
	return f
}

// Entry is a message as an entry.
func Entry(m *skepv1.DiffEntry) (snapshot.Entry, error) {
	e := snapshot.Entry{
		Grant: int(m.Grant), Path: string(m.Path), Group: m.Group, Active: m.ActiveWhy, Held: m.Held, Refused: m.Refused, Conflict: m.Conflict,
	}
	if err := snapshot.CheckPath(e.Path); err != nil {
		return e, err
	}
	var err error
	if e.Base, err = state(m.Base); err != nil {
		return e, err
	}
	e.Layer, err = state(m.Layer)
	return e, err
}

func state(f *skepv1.FileSide) (snapshot.State, error) {
	if f == nil {
		return snapshot.State{}, nil
	}
	s := snapshot.State{
		Mode: f.Mode, UID: f.Uid, GID: f.Gid, Size: f.Size, Target: string(f.Target),
		Oversized: f.Oversized, Unreadable: f.Unreadable,
	}
	for t := snapshot.File; t.Valid(); t++ {
		if t.String() == f.Type {
			s.Type = t
		}
	}
	if s.Type == snapshot.Absent {
		return s, fmt.Errorf("unknown type %q of an entry", f.Type)
	}
	if len(f.Sha256) != 0 && len(f.Sha256) != len(s.Digest) {
		return s, fmt.Errorf("a digest of %d bytes", len(f.Sha256))
	}
	copy(s.Digest[:], f.Sha256)
	if f.MtimeNs != 0 {
		s.ModTime = time.Unix(0, f.MtimeNs)
	}
	for _, x := range f.Xattrs {
		s.Xattrs = append(s.Xattrs, snapshot.Xattr{Name: string(x.Name), Value: x.Value})
	}
	return s, nil
}
