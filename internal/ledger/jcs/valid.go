package jcs

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"unicode/utf8"
)

// maxDepth bounds the nesting that is read; nothing the ledger writes comes near.
const maxDepth = 32

// ErrNotCanonical is wrapped by every error of [Valid] and [Decode] that is
// about the form and not about the members.
var ErrNotCanonical = errors.New("not canonical JSON")

// Valid reports whether b is exactly one value in the package's form. It does
// not allocate for valid input but for the names of the objects it is inside.
func Valid(b []byte) error {
	s := scanner{b: b}
	if err := s.value(0); err != nil {
		return err
	}
	if s.i != len(b) {
		return s.fault("bytes after the value")
	}
	return nil
}

type scanner struct {
	b     []byte
	i     int
	codec Codec // for what is decoded
}

func (s *scanner) fault(what string) error {
	return fmt.Errorf("%w: %s at byte %d", ErrNotCanonical, what, s.i)
}

func (s *scanner) take(lit string) bool {
	if len(s.b)-s.i < len(lit) || string(s.b[s.i:s.i+len(lit)]) != lit {
		return false
	}
	s.i += len(lit)
	return true
}

func (s *scanner) value(depth int) error {
	if depth > maxDepth {
		return s.fault("nested too deeply")
	}
	if s.i >= len(s.b) {
		return s.fault("the end where a value should be")
	}
	switch s.b[s.i] {
	case '"':
		_, err := s.text()
		return err
	case '{':
		return s.object(depth)
	case '[':
		return s.array(depth)
	}
	if s.take("true") || s.take("false") || s.take("null") {
		return nil
	}
	return s.fault("no value of this form")
}

func (s *scanner) array(depth int) error {
	s.i++
	if s.take("]") {
		return nil
	}
	for {
		if err := s.value(depth + 1); err != nil {
			return err
		}
		if s.take("]") {
			return nil
		}
		if !s.take(",") {
			return s.fault("no comma in an array")
		}
	}
}

func (s *scanner) object(depth int) error {
	s.i++
	if s.take("}") {
		return nil
	}
	var last []byte
	lastPlain := true
	for n := 0; ; n++ {
		name, plain, err := s.plainText()
		if err != nil {
			return err
		}
		if n > 0 && !namesAscend(last, name, plain && lastPlain) {
			return s.fault("members out of order or twice")
		}
		last, lastPlain = name, plain
		if !s.take(":") {
			return s.fault("no colon after a member's name")
		}
		if err := s.value(depth + 1); err != nil {
			return err
		}
		if s.take("}") {
			return nil
		}
		if !s.take(",") {
			return s.fault("no comma in an object")
		}
	}
}

// namesAscend compares two member names as they stand between their quotes.
// Plain ASCII names, all that the ledger itself writes, compare as bytes.
func namesAscend(a, b []byte, plain bool) bool {
	if plain {
		return bytes.Compare(a, b) < 0
	}
	return compareUTF16(unescape(a), unescape(b)) < 0
}

// text reads a string and returns what stands between its quotes.
func (s *scanner) text() ([]byte, error) {
	in, _, err := s.plainText()
	return in, err
}

// plainText is text, and says whether the string is ASCII without escapes.
func (s *scanner) plainText() (in []byte, plain bool, err error) {
	if !s.take(`"`) {
		return nil, false, s.fault("no string")
	}
	start, ascii, escapes := s.i, true, false
	for s.i < len(s.b) {
		s.i += plainRun(s.b[s.i:])
		if s.i == len(s.b) {
			break
		}
		switch c := s.b[s.i]; {
		case c == '"':
			in := s.b[start:s.i]
			if !ascii && !utf8.Valid(in) {
				return nil, false, s.fault("a string that is not UTF-8")
			}
			s.i++
			return in, ascii && !escapes, nil
		case c == '\\':
			escapes = true
			if err := s.escape(); err != nil {
				return nil, false, err
			}
		case c < 0x20:
			return nil, false, s.fault("a bare control character")
		default:
			ascii = ascii && c < utf8.RuneSelf
			s.i++
		}
	}
	return nil, false, s.fault("the end inside a string")
}

// plainRun counts the leading bytes that stand for themselves, eight at a time:
// printable ASCII but the quote and the backslash. (It may stop early.)
func plainRun(b []byte) int {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	n := 0
	for ; len(b)-n >= 8; n += 8 {
		w := binary.LittleEndian.Uint64(b[n:])
		quote, slash := w^(ones*'"'), w^(ones*'\\')
		// A byte's high bit is set in this word if it is below 0x20, is zero
		// after the exclusive or, or was set before.
		if special := (w - ones*0x20) | (quote - ones) | (slash - ones) | w; special&highs != 0 {
			return n + bits.TrailingZeros64(special&highs)/8
		}
	}
	return n
}

// escape accepts only the one escape that RFC 8785 gives each character.
func (s *scanner) escape() error {
	rest := s.b[s.i+1:]
	if len(rest) == 0 {
		return s.fault("the end inside an escape")
	}
	switch rest[0] {
	case '"', '\\', 'b', 't', 'n', 'f', 'r':
		s.i += 2
		return nil
	case 'u':
		if len(rest) >= 5 && rest[1] == '0' && rest[2] == '0' && (rest[3] == '0' || rest[3] == '1') {
			if v, ok := hexDigit(rest[4]); ok {
				switch rest[3]&1<<4 | v {
				case '\b', '\t', '\n', '\f', '\r':
				default:
					s.i += 6
					return nil
				}
			}
		}
	}
	return s.fault("an escape that is not the shortest")
}

func hexDigit(c byte) (byte, bool) {
	switch {
	case c >= '0' && c <= '9':
		return c - '0', true
	case c >= 'a' && c <= 'f':
		return c - 'a' + 10, true
	}
	return 0, false
}

// unescape undoes the escapes of a string that text has accepted.
func unescape(in []byte) string {
	if bytes.IndexByte(in, '\\') < 0 {
		return string(in)
	}
	out := make([]byte, 0, len(in))
	for i := 0; i < len(in); i++ {
		if in[i] != '\\' {
			out = append(out, in[i])
			continue
		}
		i++
		switch in[i] {
		case 'b':
			out = append(out, '\b')
		case 't':
			out = append(out, '\t')
		case 'n':
			out = append(out, '\n')
		case 'f':
			out = append(out, '\f')
		case 'r':
			out = append(out, '\r')
		case 'u':
			v, _ := hexDigit(in[i+4])
			out = append(out, in[i+3]&1<<4|v)
			i += 4
		default:
			out = append(out, in[i])
		}
	}
	return string(out)
}
