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
	"math"
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
	if e.Time.UnixNano() < 0 {
		return dst, fmt.Errorf("encode an entry of cell %q: its time is before 1970", e.Cell)
	}
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
	t := tail{rest: b}
	if !t.suffix(`"}`) {
		return e, fmt.Errorf("%w: it does not end as one", ErrForm)
	}
	if v := t.member(`,"v":"`); t.ok && string(v) != kind.Version {
		return e, fmt.Errorf("%w %q", ErrVersion, v)
	}
	nanos := t.next(`,"time":"`)
	seq := t.next(`,"seq":"`)
	prev := t.next(`,"prev":"`)
	k := t.next(`,"kind":"`)
	cell := t.next(`,"cell":"`)
	rest, ok := bytes.CutPrefix(t.rest, []byte(`{"agent":"`))
	agent, body, ok2 := bytes.Cut(rest, []byte(`","body":`))
	if !t.ok || !ok || !ok2 {
		return e, fmt.Errorf("%w: its envelope is broken", ErrForm)
	}
	e.Agent, e.Body, e.Cell, e.Kind = string(agent), body, string(cell), kind.Kind(k)
	if e.Cell == "" || !isID(e.Cell) || !isID(e.Agent) || len(body) == 0 {
		return e, fmt.Errorf("%w: its cell or agent is not an id", ErrForm)
	}
	return e, e.parseFields(nanos, seq, prev)
}

// tail reads members from the end of an entry; after the first that is not
// there, ok is false.
type tail struct {
	rest []byte
	ok   bool
}

func (t *tail) suffix(s string) bool {
	n := len(t.rest) - len(s)
	t.ok = n >= 0 && string(t.rest[n:]) == s
	if t.ok {
		t.rest = t.rest[:n]
	}
	return t.ok
}

// maxMember bounds the value of an envelope's member, so that a body that holds
// the same text is not searched.
const maxMember = 300

// member takes the last member, whose value runs to the end of the rest.
func (t *tail) member(name string) []byte {
	if !t.ok {
		return nil
	}
	from := max(0, len(t.rest)-maxMember-len(name))
	at := bytes.LastIndexByte(t.rest[from:], '"') // the quote that begins the value
	if at += from + 1; at < len(name) || string(t.rest[at-len(name):at]) != name {
		t.ok = false
		return nil
	}
	value := t.rest[at:]
	t.rest = t.rest[:at-len(name)]
	return value
}

func (t *tail) next(name string) []byte {
	if !t.ok || !t.suffix(`"`) {
		return nil
	}
	return t.member(name)
}

func (e *Entry) parseFields(nanos, seq, prev []byte) error {
	n, ok := parseDecimal(nanos)
	if !ok || n > math.MaxInt64 {
		return fmt.Errorf("%w: time %.30q", ErrForm, nanos)
	}
	e.Time = time.Unix(0, int64(n)).UTC()
	if e.Seq, ok = parseDecimal(seq); !ok {
		return fmt.Errorf("%w: seq %.30q", ErrForm, seq)
	}
	if len(prev) != hex.EncodedLen(len(e.Prev)) || bytes.ContainsAny(prev, "ABCDEF") {
		return fmt.Errorf("%w: prev %.70q", ErrForm, prev)
	}
	if _, err := hex.Decode(e.Prev[:], prev); err != nil {
		return fmt.Errorf("%w: prev: %w", ErrForm, err)
	}
	if !kind.Known(e.Kind) {
		return fmt.Errorf("%w: kind %q is not in version %s", ErrVersion, e.Kind, kind.Version)
	}
	return nil
}

// parseDecimal reads the shortest decimal form of a uint64 and no other.
func parseDecimal(b []byte) (uint64, bool) {
	if len(b) == 0 || len(b) > 20 || b[0] == '0' && len(b) > 1 {
		return 0, false
	}
	var n uint64
	for _, c := range b {
		if c < '0' || c > '9' || n > math.MaxUint64/10 {
			return 0, false
		}
		next := n*10 + uint64(c-'0')
		if next < n*10 {
			return 0, false
		}
		n = next
	}
	return n, true
}
