package tunnel

import (
	"bufio"
	"bytes"
	"errors"
	"strings"
)

// Faults of a line. Any other error is the reader's.
var (
	ErrLineTooLong = errors.New("line too long")
	ErrBareLF      = errors.New("line without CR")
)

// ReadLine reads to CRLF, both included, at most max bytes. Of an end in mid-line
// it tells with io.EOF, and returns what came.
func ReadLine(r *bufio.Reader, max int) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		line = append(line, part...)
		if len(line) > max {
			return nil, ErrLineTooLong
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if err != nil {
			return line, err
		}
		if !bytes.HasSuffix(line, []byte("\r\n")) {
			return nil, ErrBareLF
		}
		return line, nil
	}
}

// IsToken reports whether s is a token (RFC 9110, 5.6.2).
func IsToken(s string) bool {
	for i := range len(s) {
		c := s[i]
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0) {
			return false
		}
	}
	return s != ""
}

// IsFieldValue reports whether s holds no control byte but the tab (RFC 9110, 5.5).
func IsFieldValue(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < 0x20 && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}

// words are the members of a comma-separated field, in lower case.
func words(values []string) []string {
	var all []string
	for _, v := range values {
		for word := range strings.SplitSeq(v, ",") {
			if word = strings.ToLower(strings.Trim(word, " \t")); word != "" {
				all = append(all, word)
			}
		}
	}
	return all
}
