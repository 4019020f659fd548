package snapshot

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash"
	"strconv"
	"strings"
)

// manifestMagic opens the hashed text; its NUL ends it (S3).
const manifestMagic = "skep-diff-v1\x00"

// HashEntries is the SHA-256 of the canonical manifest, as 64 hex (S3). The
// entries must be sorted by full path in byte order; path gives that path.
func HashEntries(entries []Entry, path func(*Entry) string) string {
	m := manifest{sha256.New()}
	m.h.Write([]byte(manifestMagic))
	for i := range entries {
		e := &entries[i]
		m.field(path(e))
		m.field(e.Op().String())
		m.side(&e.Base)
		m.side(&e.Layer)
	}
	return hex.EncodeToString(m.h.Sum(nil))
}

// manifest writes the fields of S3, each with its length as u32 big endian.
// Seven fields per side; an absent side has seven empty ones, so that no side
// can be read as another.
type manifest struct{ h hash.Hash }

func (m manifest) field(s string) {
	var length [4]byte
	binary.BigEndian.PutUint32(length[:], uint32(len(s)))
	m.h.Write(length[:])
	m.h.Write([]byte(s))
}

func (m manifest) side(s *State) {
	if s.Type == Absent {
		for range 7 {
			m.field("")
		}
		return
	}
	m.field(s.Type.String())
	m.field(strconv.FormatUint(uint64(s.Mode), 8))
	m.field(strconv.FormatUint(uint64(s.UID), 10))
	m.field(strconv.FormatUint(uint64(s.GID), 10))
	m.field(strconv.FormatInt(s.Size, 10))
	switch {
	case s.Type != File && s.Type != Symlink, s.Unreadable:
		m.field("")
	default:
		m.field(string(s.Digest[:]))
	}
	var xattrs strings.Builder
	for _, x := range s.Xattrs {
		for _, part := range []string{x.Name, string(x.Value)} {
			var length [4]byte
			binary.BigEndian.PutUint32(length[:], uint32(len(part)))
			xattrs.Write(length[:])
			xattrs.WriteString(part)
		}
	}
	if s.Oversized {
		xattrs.WriteString("oversized")
	}
	m.field(xattrs.String())
}

// MinHashPrefix is how much of a hash a person must give to mean it (S3).
const MinHashPrefix = 12

// MatchHash reports whether given, 12 to 64 lower-case hex digits, begins
// hash. The error says what is wrong with given.
func MatchHash(hash, given string) (bool, error) {
	if len(given) < MinHashPrefix || len(given) > len(hash) {
		return false, fmt.Errorf("hash %q: give %d to 64 of its digits", clip(given), MinHashPrefix)
	}
	if strings.Trim(given, "0123456789abcdef") != "" {
		return false, fmt.Errorf("hash %q: not lower-case hex", clip(given))
	}
	return strings.HasPrefix(hash, given), nil
}
