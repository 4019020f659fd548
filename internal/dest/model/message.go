package model

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"skep.dev/skep/internal/h2"
	"skep.dev/skep/internal/route"
)

// errNoAnswer says that the gateway gave no head that could be passed on.
var errNoAnswer = errors.New("the gateway does not answer")

// request is what a head says that is passed on.
type request struct {
	target string
	fields []h2.Field
	waits  bool // for leave to send the body (100-continue)
	close  bool // no other request follows
	old    bool // HTTP/1.0, which these names do not speak (B76)
}

// parse reads a head that route has found well formed.
func parse(h route.Head) request {
	lines := strings.Split(strings.TrimSuffix(string(h.Raw), "\r\n\r\n"), "\r\n")
	first := strings.Split(lines[0], " ")
	r := request{target: first[1], old: first[2] == "HTTP/1.0"}
	var named []string // by Connection: of this connection alone (RFC 9110, 7.6.1)
	for _, line := range lines[1:] {
		key, value, _ := strings.Cut(line, ":")
		key, value = strings.ToLower(key), strings.Trim(value, " \t")
		switch {
		case key == "connection":
			for word := range strings.SplitSeq(strings.ToLower(value), ",") {
				word = strings.Trim(word, " \t")
				named = append(named, word)
				r.close = r.close || word == "close"
			}
		case key == "expect":
			r.waits = strings.EqualFold(value, "100-continue")
		case !isOurs(key):
			r.fields = append(r.fields, h2.Field{Name: key, Value: value})
		}
	}
	r.fields = slices.DeleteFunc(r.fields, func(f h2.Field) bool { return slices.Contains(named, f.Name) })
	return r
}

// isOurs is true for what is of this connection, and for what says who asks: that
// is the gate's to say (B75). Some servers read "_" as "-", so both spellings go.
func isOurs(key string) bool {
	switch key {
	case "host", "forwarded", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto":
		return true
	}
	return isHop(key) || strings.HasPrefix(strings.ReplaceAll(key, "_", "-"), "x-skep-")
}

func isHop(key string) bool {
	switch key {
	case "connection", "proxy-connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "http2-settings", "proxy-authorization", "proxy-authenticate":
		return true
	}
	return false
}

// give passes an answer on, each piece at once. An error means that the connection
// is over, errNoAnswer that nothing was sent.
func (s *session) give(answer *h2.Stream, h route.Head, r request) error {
	status, err := answer.Status()
	if err != nil {
		return fmt.Errorf("%w: %w", errNoAnswer, err)
	}
	fields, err := answer.Fields()
	if err != nil {
		return fmt.Errorf("%w: %w", errNoAnswer, err)
	}
	out, measured, err := head(status, fields)
	if err != nil {
		return fmt.Errorf("%w: %w", errNoAnswer, err)
	}
	empty := h.Inner.Method == "HEAD" || status == "204" || status == "304"
	chunked := !measured && !empty
	switch {
	case chunked:
		out = append(out, "Transfer-Encoding: chunked\r\n"...)
	case r.close:
		out = append(out, "Connection: close\r\n"...)
	}
	if _, err := (toAgent{s}).Write(append(out, "\r\n"...)); err != nil {
		return err
	}
	if err := s.body(answer, chunked); err != nil {
		return err
	}
	if r.close {
		return errLast
	}
	return nil
}

// head writes an answer's head, all but its end; measured says that it tells how
// long the body is. What would not stay one field is refused.
func head(status string, fields []h2.Field) (out []byte, measured bool, err error) {
	if n, err := strconv.Atoi(status); err != nil || n < 200 || n > 999 {
		return nil, false, fmt.Errorf("status %q", status)
	}
	out = append(out, "HTTP/1.1 "+status+" "+words(status)+"\r\n"...)
	for _, f := range fields {
		if isHop(f.Name) {
			continue
		}
		if !route.IsField(f.Name, f.Value) {
			return nil, false, errors.New("a malformed field")
		}
		measured = measured || f.Name == "content-length"
		out = append(out, canonical(f.Name)+": "+f.Value+"\r\n"...)
	}
	return out, measured, nil
}

// words are of no meaning, and may be left out (RFC 9112, 4).
func words(status string) string {
	if status == "200" {
		return "OK"
	}
	return ""
}

// canonical is a field's name as agents are used to see it.
func canonical(key string) string {
	b := []byte(key)
	for i := range b {
		if (i == 0 || b[i-1] == '-') && b[i] >= 'a' && b[i] <= 'z' {
			b[i] -= 'a' - 'A'
		}
	}
	return string(b)
}

// body passes the answer's body on. One that breaks off leaves the connection
// without the end of its chunks.
func (s *session) body(answer io.Reader, chunked bool) error {
	const room = 10 // for a chunk's size and line end, in hexadecimal
	buf := make([]byte, room+16<<10+2)
	for {
		n, err := answer.Read(buf[room : len(buf)-2])
		piece := buf[room : room+n]
		if chunked && n > 0 {
			size := strconv.AppendInt(nil, int64(n), 16)
			size = append(size, "\r\n"...)
			copy(buf[room-len(size):], size)
			copy(buf[room+n:], "\r\n")
			piece = buf[room-len(size) : room+n+2]
		}
		if n > 0 {
			if _, err := (toAgent{s}).Write(piece); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			if chunked {
				_, err = io.WriteString(toAgent{s}, "0\r\n\r\n")
				return err
			}
			return nil
		}
		if err != nil {
			return err
		}
	}
}
