package secret

import (
	"bytes"
	"strings"

	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/tunnel"
)

// Field is one line of a head. The value is bytes, so that it can be overwritten.
type Field struct {
	Name  string
	Value []byte // without the spaces around it
}

// Head is one request head of HTTP/1.1.
type Head struct {
	Method  string
	Target  []byte
	Version string
	Fields  []Field
}

// ReadHead takes a head apart that ends with its empty line. It is as strict as the
// reader of the flow: a line that is no field is malformed-header.
func ReadHead(raw []byte) (Head, flow.Reason) {
	text, whole := bytes.CutSuffix(raw, []byte("\r\n\r\n"))
	lines := bytes.Split(text, []byte("\r\n"))
	parts := bytes.Split(lines[0], []byte(" "))
	if !whole || len(parts) != 3 || !tunnel.IsToken(string(parts[0])) || len(parts[1]) == 0 || bytes.ContainsFunc(parts[1], unprintable) ||
		string(parts[2]) != "HTTP/1.1" && string(parts[2]) != "HTTP/1.0" {
		return Head{}, flow.MalformedRequestLine
	}
	h := Head{Method: string(parts[0]), Target: parts[1], Version: string(parts[2])}
	for _, line := range lines[1:] {
		name, value, ok := bytes.Cut(line, []byte(":"))
		if !ok || !tunnel.IsToken(string(name)) || !tunnel.IsFieldValue(string(value)) {
			return Head{}, flow.MalformedHeader
		}
		h.Fields = append(h.Fields, Field{string(name), bytes.Trim(value, " \t")})
	}
	return h, flow.None
}

func unprintable(c rune) bool { return c <= ' ' || c >= 0x7f }

// Bytes is the head as it goes on the wire. Whoever sends it overwrites it afterwards.
func (h Head) Bytes() []byte {
	size := len(h.Method) + len(h.Target) + len(h.Version) + 6
	for _, f := range h.Fields {
		size += len(f.Name) + len(f.Value) + 4
	}
	out := make([]byte, 0, size) // at once, so that no copy is left behind
	out = append(append(append(out, h.Method...), ' '), h.Target...)
	out = append(append(append(out, ' '), h.Version...), "\r\n"...)
	for _, f := range h.Fields {
		out = append(append(append(append(out, f.Name...), ": "...), f.Value...), "\r\n"...)
	}
	return append(out, "\r\n"...)
}

// Wipe overwrites what may have been filled in.
func (h Head) Wipe() {
	clear(h.Target)
	for _, f := range h.Fields {
		clear(f.Value)
	}
}

// Path is that of an origin-form or absolute-form target, without the query.
func (h Head) Path() string {
	path, _, _ := strings.Cut(string(h.Target), "?")
	if len(path) >= 8 && strings.Contains(path[:8], "://") {
		_, path, _ = strings.Cut(path[strings.Index(path, "://")+3:], "/")
		path = "/" + path
	}
	return path
}

// first is the value of a field, or "".
func (h Head) value(name string) string {
	for _, f := range h.Fields {
		if strings.EqualFold(f.Name, name) {
			return string(f.Value)
		}
	}
	return ""
}
