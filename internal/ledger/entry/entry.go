// Package entry is the form of one ledger entry on disk: its canonical JSON,
// its hash, and the frame around it.
//
// Its laws:
//   - An entry is {"agent","body","cell","kind","prev","seq","time","v"}, in
//     that order, which is the canonical one (D2a). Its hash is SHA-256 over
//     exactly these bytes; the hash is never stored beside them.
//   - The envelope holds no byte that needs an escape: [Append] refuses cell
//     and agent ids that would. So the envelope is read from both ends, whatever
//     the body holds.
//   - A frame is length (u32 LE), CRC-32C of the entry (u32 LE), the entry
//     (D3a). The CRC finds torn writes; only the hash finds tampering.
package entry

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"time"

	"skep.dev/skep/internal/ledger/kind"
)

// Hash is a SHA-256.
type Hash [sha256.Size]byte

// String is lower-case hex.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// ParseHash reads the form of [Hash.String] and no other.
func ParseHash(s string) (Hash, error) {
	var h Hash
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != len(h) || hex.EncodeToString(b) != s {
		return h, fmt.Errorf("hash %q: not 64 lower-case hex digits", s)
	}
	copy(h[:], b)
	return h, nil
}

// Genesis is the prev of the first entry of a cell's chain: no chain can be
// passed off as another's.
func Genesis(cell string) Hash {
	return sha256.Sum256(append([]byte("skep-ledger-v1\x00"), cell...))
}

// Entry is one entry with its body still as bytes.
type Entry struct {
	Seq   uint64 // from 1, without a gap
	Prev  Hash
	Time  time.Time
	Cell  string
	Agent string // "" for a cell without a bundle
	Kind  kind.Kind
	Body  []byte // canonical JSON
}

// Decode reads the typed body, strictly.
func (e *Entry) Decode() (kind.Body, error) { return kind.Decode(e.Kind, e.Body) }

// Append appends the entry's canonical JSON. It refuses ids that hold anything
// but letters, digits, dot, dash and underscore.
func Append(dst []byte, e *Entry) ([]byte, error) {
	if e.Cell == "" || !isID(e.Cell) || !isID(e.Agent) {
		return dst, fmt.Errorf("encode an entry of cell %q, agent %q: not an id", e.Cell, e.Agent)
	}
	dst = append(dst, `{"agent":"`...)
	dst = append(dst, e.Agent...)
	dst = append(dst, `","body":`...)
	dst = append(dst, e.Body...)
	dst = append(dst, `,"cell":"`...)
	dst = append(dst, e.Cell...)
	dst = append(dst, `","kind":"`...)
	dst = append(dst, e.Kind...)
	dst = append(dst, `","prev":"`...)
	dst = hex.AppendEncode(dst, e.Prev[:])
	dst = append(dst, `","seq":"`...)
	dst = strconv.AppendUint(dst, e.Seq, 10)
	dst = append(dst, `","time":"`...)
	dst = strconv.AppendInt(dst, e.Time.UnixNano(), 10)
	return append(dst, `","v":"`+kind.Version+`"}`...), nil
}

func isID(s string) bool {
	if len(s) > 253 {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '.' && c != '-' && c != '_' {
			return false
		}
	}
	return true
}

// ErrForm and ErrVersion are the two ways in which bytes are not an entry:
// not of this form, or of a version or kind that this program does not know.
var (
	ErrForm    = errors.New("not an entry")
	ErrVersion = errors.New("unknown version")
)

// Parse reads an entry. Its Body is a part of b. The body's own form is not
// checked here, since the hash covers it.
func Parse(b []byte) (Entry, error) {
	var e Entry
	var fields [6]string // v, time, seq, prev, kind, cell, from the end
	rest, ok := bytes.CutSuffix(b, []byte(`"}`))
	for i, name := range [6]string{`,"v":"`, `,"time":"`, `,"seq":"`, `,"prev":"`, `,"kind":"`, `,"cell":"`} {
		if !ok {
			return e, fmt.Errorf("%w: its envelope is broken before the member %s", ErrForm, name[2:len(name)-3])
		}
		at := bytes.LastIndex(rest, []byte(name))
		if at < 0 {
			return e, fmt.Errorf("%w: no member %s", ErrForm, name[2:len(name)-3])
		}
		fields[i] = string(rest[at+len(name):])
		if i == 0 && fields[0] != kind.Version {
			return e, fmt.Errorf("%w %q", ErrVersion, fields[0])
		}
		rest = rest[:at]
		if i < 5 {
			rest, ok = bytes.CutSuffix(rest, []byte(`"`))
		}
	}
	rest, ok = bytes.CutPrefix(rest, []byte(`{"agent":"`))
	agent, body, ok2 := bytes.Cut(rest, []byte(`","body":`))
	if !ok || !ok2 {
		return e, fmt.Errorf("%w: no agent or no body", ErrForm)
	}
	e.Agent, e.Body, e.Cell, e.Kind = string(agent), body, fields[5], kind.Kind(fields[4])
	if e.Cell == "" || !isID(e.Cell) || !isID(e.Agent) || len(body) == 0 {
		return e, fmt.Errorf("%w: its cell or agent is not an id", ErrForm)
	}
	return e, e.parseFields(fields[1], fields[2], fields[3])
}

func (e *Entry) parseFields(nanos, seq, prev string) error {
	n, err := strconv.ParseInt(nanos, 10, 64)
	if err != nil || strconv.FormatInt(n, 10) != nanos {
		return fmt.Errorf("%w: time %q", ErrForm, nanos)
	}
	e.Time = time.Unix(0, n).UTC()
	if e.Seq, err = strconv.ParseUint(seq, 10, 64); err != nil || strconv.FormatUint(e.Seq, 10) != seq {
		return fmt.Errorf("%w: seq %q", ErrForm, seq)
	}
	if e.Prev, err = ParseHash(prev); err != nil {
		return fmt.Errorf("%w: prev: %w", ErrForm, err)
	}
	if !kind.Known(e.Kind) {
		return fmt.Errorf("%w: kind %q is not in version %s", ErrVersion, e.Kind, kind.Version)
	}
	return nil
}
