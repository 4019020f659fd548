// Package request reads the methods and paths of HTTP requests as rules do (B83).
//
// Its laws:
//   - A path is compared as it stands, never decoded.
//   - A path that two servers could read as two is plain for nobody.
package request

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// PathKind is how a request's path reads (B83).
type PathKind uint8

// A server may take an encoded slash for a slash or for a part of a name; dot segments,
// control bytes and escapes that are none are taken in more ways than that.
const (
	PlainPath PathKind = iota
	SlashedPath
	AmbiguousPath
)

// KindOfPath reads a path as it stands in a request, without its query. A backslash
// counts as a slash, and what follows a semicolon as no part of a segment: some servers
// read them so.
func KindOfPath(path string) PathKind {
	kind := PlainPath
	segment := make([]byte, 0, 4) // of the current one what tells whether it is dots, decoded
	dots := func() bool { return string(segment) == "." || string(segment) == ".." }
	parameter := false
	for i := 0; i < len(path); i++ {
		c, encoded := path[i], false
		if c == '%' {
			if i+2 >= len(path) {
				return AmbiguousPath
			}
			high, low := unhex(path[i+1]), unhex(path[i+2])
			if high > 15 || low > 15 {
				return AmbiguousPath
			}
			c, encoded = high<<4|low, true
			i += 2
		}
		switch {
		case c < ' ' || c == 0x7f:
			return AmbiguousPath
		case c == '/' || c == '\\':
			if dots() {
				return AmbiguousPath
			}
			if encoded || c == '\\' {
				kind = SlashedPath
			}
			segment, parameter = segment[:0], false
		case c == ';':
			parameter = true
		case !parameter && len(segment) < cap(segment):
			segment = append(segment, c)
		}
	}
	if dots() {
		return AmbiguousPath
	}
	return kind
}

// unhex is the value of a hexadecimal digit; 255 if it is none.
func unhex(c byte) byte {
	switch {
	case '0' <= c && c <= '9':
		return c - '0'
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10
	case 'A' <= c && c <= 'F':
		return c - 'A' + 10
	}
	return 255
}

// Check says what is wrong with the methods and paths of a rule.
func Check(methods, paths []string, encodedSlash bool) error {
	for _, m := range methods {
		if m == "" || strings.Trim(m, "ABCDEFGHIJKLMNOPQRSTUVWXYZ-") != "" {
			return fmt.Errorf("method %q: want capital letters", m)
		}
	}
	for _, p := range paths {
		if !strings.HasPrefix(p, "/") || strings.ContainsFunc(p, func(c rune) bool { return c <= ' ' || c == ',' || c >= 0x7f }) ||
			strings.Contains(strings.TrimSuffix(p, "/*"), "*") || strings.ContainsAny(p, "?#") {
			return fmt.Errorf("path %q: want printable ASCII from the first / without a query, with * only in a final /*", p)
		}
		switch kind := KindOfPath(p); {
		case kind == AmbiguousPath:
			return fmt.Errorf("path %q: a request with dot segments, control bytes or broken escapes is refused, so that it matches none", p)
		case kind == SlashedPath && !encodedSlash:
			return fmt.Errorf("path %q: a request with an encoded slash is refused without encoded_slash: true", p)
		}
	}
	if encodedSlash && len(paths) == 0 {
		return errors.New("encoded_slash: true says which paths match, and the rule has none")
	}
	return nil
}

// MatchPath tells whether one of a rule's paths is a request's, compared undecoded: the
// whole of it, or its beginning where the rule's ends in "/*". No paths match every one.
func MatchPath(paths []string, path string) bool {
	return len(paths) == 0 || slices.ContainsFunc(paths, func(p string) bool {
		if dir, prefix := strings.CutSuffix(p, "*"); prefix {
			return strings.HasPrefix(path, dir)
		}
		return path == p
	})
}
