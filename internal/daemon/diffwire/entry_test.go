package diffwire

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/internal/snapshot"
)

func TestEntriesComeBackAsTheyWere(t *testing.T) {
	file := snapshot.State{
		Type: snapshot.File, Mode: 0o4755, UID: 1, GID: 2, Size: 3, Digest: [32]byte{1, 2}, ModTime: time.Unix(5, 6),
		Xattrs: []snapshot.Xattr{{Name: "user.a", Value: []byte{0, 255}}},
	}
	for name, e := range map[string]snapshot.Entry{
		"added":   {Grant: 1, Path: "a\xff\nb", Layer: file, Group: 9},
		"removed": {Path: "x/y", Base: file},
		"link":    {Path: "l", Base: file, Layer: snapshot.State{Type: snapshot.Symlink, Target: "\xfe/..", Size: 4}},
		"root":    {Path: ".", Base: snapshot.State{Type: snapshot.Dir, Mode: 0o755}, Layer: snapshot.State{Type: snapshot.Dir}},
		"judged":  {Path: "p", Layer: snapshot.State{Type: snapshot.FIFO, Unreadable: true, Oversized: true}, Active: "why", Held: true, Refused: "no", Conflict: true},
	} {
		t.Run(name, func(t *testing.T) {
			raw, err := proto.Marshal(Message(&e))
			if err != nil {
				t.Fatal(err)
			}
			var m skepv1.DiffEntry
			if err := proto.Unmarshal(raw, &m); err != nil {
				t.Fatal(err)
			}
			got, err := Entry(&m)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(e, got); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestHostileEntriesAreRefused(t *testing.T) {
	for name, m := range map[string]*skepv1.DiffEntry{
		"path upwards":  {Path: []byte("../x")},
		"absolute path": {Path: []byte("/etc/passwd")},
		"no path":       {},
		"unknown type":  {Path: []byte("x"), Layer: &skepv1.FileSide{Type: "door"}},
		"short digest":  {Path: []byte("x"), Base: &skepv1.FileSide{Type: snapshot.File.String(), Sha256: []byte{1}}},
	} {
		if _, err := Entry(m); err == nil {
			t.Errorf("%s: it was read", name)
		}
	}
}
