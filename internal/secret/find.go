package secret

import (
	"bytes"
	"encoding/base64"
	"strings"
)

// overlap is how many bytes of earlier pieces are looked at again: more than the longest
// encoding of the longest placeholder, each base64 character escaped as \uXXXX.
const overlap = 1024

// Finder looks for placeholders in a text that comes in pieces: plain, percent-encoded,
// JSON-escaped, and in base64 of both alphabets at each of its three alignments (B129).
// It finds what is none rather than miss one.
type Finder struct{ tail []byte }

// Feed returns the placeholders, as a binding would spell them, that end in b or shortly
// before. One may be returned again.
func (f *Finder) Feed(b []byte) []string {
	var found []string
	for {
		n := min(len(b), 32<<10)
		text := append(f.tail, b[:n]...)
		found = append(found, find(text)...)
		f.tail = append(f.tail[:0], text[max(0, len(text)-overlap):]...)
		if b = b[n:]; len(b) == 0 {
			return found
		}
	}
}

// find returns all placeholders of one text.
func find(text []byte) []string {
	found := search(text)
	if bytes.IndexByte(text, '%') >= 0 {
		found = append(found, search(unpercent(text))...)
	}
	if bytes.IndexByte(text, '\\') >= 0 {
		found = append(found, search(unescape(text))...)
	}
	return found
}

func search(text []byte) []string {
	found := append(plain(text), encoded(text)...)
	if bytes.ContainsAny(text, "\r\n") {
		// Base64 is broken into lines.
		found = append(found, encoded(unbroken(text))...)
	}
	return found
}

// plain returns the placeholders that stand in the text as they are.
func plain(text []byte) []string {
	var found []string
	for {
		i := bytes.Index(text, []byte(prefix))
		if i < 0 {
			return found
		}
		if p := first(text[i:]); p != "" {
			found = append(found, p)
		}
		text = text[i+1:]
	}
}

// first is the shortest placeholder at the beginning of text, or "".
func first(text []byte) string {
	if !bytes.HasPrefix(text, []byte(prefix)) {
		return ""
	}
	run := 0 // of hexadecimal digits
	for i := len(prefix); i < min(len(text), maxPlaceholder); i++ {
		c := text[i]
		switch {
		case '0' <= c && c <= '9', 'a' <= c && c <= 'f':
			run++
			if run == hexes && i > len(prefix)+hexes && text[i-hexes] == '-' {
				return string(text[:i+1])
			}
			if run == hexes {
				run--
			}
		case isWord(c):
			run = 0
		default:
			return ""
		}
	}
	return ""
}

func isWord(c byte) bool { return strings.IndexByte(letters+digits+"_-", c) >= 0 }

// encoded returns the placeholders whose base64 stands in the text. What three letters
// of it have before the prefix shifts its bits, so that it has three spellings.
func encoded(text []byte) []string {
	var found []string
	for shift := range 3 {
		whole := base64.RawStdEncoding.EncodeToString([]byte("\x00\x00"[:shift] + prefix))
		from, to := (8*shift+5)/6, 8*(shift+len(prefix))/6 // characters with bits of the prefix alone
		for rest, at := text, 0; ; {
			i := bytes.Index(rest, []byte(whole[from:to]))
			if i < 0 {
				break
			}
			at += i
			found = append(found, plain(decode(text, at-from, at))...)
			at++
			rest = text[at:]
		}
	}
	return found
}

// decode decodes base64 from a group's start, which may lie before the text, until it
// ends or is long enough. Up to sure, what is no base64 counts as zeros.
func decode(text []byte, start, sure int) []byte {
	var out []byte
	var bits, have uint
	for i := start; i < len(text) && len(out) < maxPlaceholder+3; i++ {
		digit := -1
		if i >= 0 {
			digit = sextet(text[i])
		}
		switch {
		case digit < 0 && i >= sure:
			return out
		case digit < 0:
			digit = 0
		}
		bits, have = bits<<6|uint(digit), have+6
		if have >= 8 {
			have -= 8
			out = append(out, byte(bits>>have))
			bits &= 1<<have - 1
		}
	}
	return out
}

// sextet is the value of a base64 digit of either alphabet, -1 if it is none.
func sextet(c byte) int {
	switch {
	case 'A' <= c && c <= 'Z':
		return int(c - 'A')
	case 'a' <= c && c <= 'z':
		return int(c-'a') + 26
	case '0' <= c && c <= '9':
		return int(c-'0') + 52
	case c == '+' || c == '-':
		return 62
	case c == '/' || c == '_':
		return 63
	}
	return -1
}

// unbroken takes white space out.
func unbroken(text []byte) []byte {
	out := make([]byte, 0, len(text))
	for _, c := range text {
		if c != '\r' && c != '\n' && c != ' ' && c != '\t' {
			out = append(out, c)
		}
	}
	return out
}

// unpercent decodes percent-encoding; what is none stays.
func unpercent(text []byte) []byte {
	out := make([]byte, 0, len(text))
	for i := bytes.IndexByte(text, '%'); i >= 0; i = bytes.IndexByte(text, '%') {
		out = append(out, text[:i]...)
		if n, ok := number(text, i+1, 2); ok {
			out = append(out, byte(n))
			i += 2
		} else {
			out = append(out, '%')
		}
		text = text[i+1:]
	}
	return append(out, text...)
}

// unescape takes JSON's escapes out. A backslash that is escaped itself is taken for
// one that escapes: a piece may begin behind the first of the two.
func unescape(text []byte) []byte {
	out := make([]byte, 0, len(text))
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' {
			out = append(out, text[i])
			continue
		}
		if i+1 < len(text) && (text[i+1] == 'n' || text[i+1] == 'r') {
			i++ // a line break inside base64
			continue
		}
		if i+1 < len(text) && text[i+1] == 'u' {
			if n, ok := number(text, i+2, 4); ok && n < 0x80 {
				out = append(out, byte(n))
				i += 5
			}
		}
	}
	return out
}

// number reads hexadecimal digits at a place.
func number(text []byte, at, digits int) (n int, ok bool) {
	if at+digits > len(text) {
		return 0, false
	}
	for _, c := range text[at : at+digits] {
		d := strings.IndexByte("0123456789abcdef", c|0x20)
		if d < 0 || c < '0' {
			return 0, false
		}
		n = n<<4 | d
	}
	return n, true
}
