package snapshot

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"
)

func fileState(content string, mode uint32) State {
	return State{Type: File, Mode: mode, UID: 1000, GID: 1000, Size: int64(len(content)), Digest: sha256.Sum256([]byte(content))}
}

func sample() []Entry {
	link := State{Type: Symlink, UID: 1000, GID: 1000, Size: 3, Target: "a/b", Digest: sha256.Sum256([]byte("a/b"))}
	withAttr := fileState("new\n", 0o755)
	withAttr.Xattrs = []Xattr{{Name: "user.k", Value: []byte("v\x00")}}
	return []Entry{
		{Path: "a", Base: fileState("old\n", 0o644), Layer: withAttr},
		{Path: "d", Layer: State{Type: Dir, Mode: 0o755, UID: 1000, GID: 1000}},
		{Path: "gone\n\xff", Base: link},
	}
}

func pathOf(e *Entry) string { return join("/w", e.Path) }

// The golden vectors: whoever writes a second implementation must agree. The
// first is built here byte by byte from S3 alone.
func TestGoldenHashes(t *testing.T) {
	var b bytes.Buffer
	b.WriteString("skep-diff-v1\x00")
	field := func(s string) { b.Write([]byte{0, 0, byte(len(s) >> 8), byte(len(s))}); b.WriteString(s) }
	{
		sum := sha256.Sum256([]byte("x"))
		field("/w/f")
		field("added")
		for range 7 {
			field("")
		}
		for _, s := range []string{"file", "644", "1000", "1000", "1", string(sum[:]), ""} {
			field(s)
		}
	}
	want := sha256.Sum256(b.Bytes())
	if got := HashEntries([]Entry{{Path: "f", Layer: fileState("x", 0o644)}}, pathOf); got != hex.EncodeToString(want[:]) {
		t.Errorf("one added file: %s, want %x", got, want)
	}
	for _, c := range []struct {
		name    string
		entries []Entry
		want    string
	}{
		{"empty", nil, "33b5d496546276c1cb1282acaca8dda2335174785bac54563c165fa149cf5480"},
		{"three", sample(), "cacb1c4471da6c8d93febbd208cc55f78db5239fcc2c21ab2998077ec3bf94b9"},
	} {
		if got := HashEntries(c.entries, pathOf); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// Every single field of either side moves the hash (S3).
func TestHashBindsEveryField(t *testing.T) {
	changes := map[string]func(*State){
		"type":    func(s *State) { s.Type = FIFO },
		"mode":    func(s *State) { s.Mode ^= 1 },
		"uid":     func(s *State) { s.UID++ },
		"gid":     func(s *State) { s.GID++ },
		"size":    func(s *State) { s.Size++ },
		"digest":  func(s *State) { s.Digest[31]++ },
		"xattr":   func(s *State) { s.Xattrs = append(s.Xattrs, Xattr{Name: "user.z"}) },
		"hidden":  func(s *State) { s.Unreadable = true },
		"toomany": func(s *State) { s.Oversized = true },
	}
	seen := map[string]string{HashEntries(sample(), pathOf): "unchanged"}
	for name, change := range changes {
		for side := range 2 {
			e := sample()
			state := &e[0].Base
			if side == 1 {
				state = &e[0].Layer
			}
			change(state)
			got := HashEntries(e, pathOf)
			if before, dup := seen[got]; dup {
				t.Errorf("%s of side %d hashes as %s", name, side, before)
			}
			seen[got] = name
		}
	}
	e := sample()
	e[0].Path += "b"
	if _, dup := seen[HashEntries(e, pathOf)]; dup {
		t.Error("the path is not bound")
	}
}

func TestMatchHash(t *testing.T) {
	hash := strings.Repeat("0123456789abcdef", 4)
	for given, want := range map[string]bool{hash: true, hash[:12]: true, "ffffffffffff": false} {
		if ok, err := MatchHash(hash, given); ok != want || err != nil {
			t.Errorf("%s: %v, %v", given, ok, err)
		}
	}
	for _, bad := range []string{"", hash[:11], hash + "0", "0123456789AB", "0123456789a/"} {
		if ok, err := MatchHash(hash, bad); ok || err == nil {
			t.Errorf("%q was taken: %v, %v", bad, ok, err)
		}
	}
}
