package route

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"strings"

	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/tunnel"
)

// Body reads the content of one request body, without its framing and no byte
// beyond. What is malformed is a *HeadError, what breaks off io.ErrUnexpectedEOF.
func Body(src *bufio.Reader, h Head) io.Reader {
	if h.Chunked {
		return &chunks{src: src}
	}
	return &measured{src: src, left: h.Length}
}

// measured is a body of a known length.
type measured struct {
	src  *bufio.Reader
	left int64
}

func (m *measured) Read(p []byte) (int, error) {
	if m.left == 0 {
		return 0, io.EOF
	}
	n, err := m.src.Read(p[:min(int64(len(p)), m.left)])
	if m.left -= int64(n); m.left == 0 {
		return n, io.EOF
	}
	return n, early(err)
}

// chunks is a body in chunks.
type chunks struct {
	src     *bufio.Reader
	left    int64 // of the chunk
	trailer []byte
	err     error
}

func (c *chunks) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if c.err == nil && c.left == 0 {
		c.next()
	}
	if c.err != nil {
		return 0, c.err
	}
	n, err := c.src.Read(p[:min(int64(len(p)), c.left)])
	if c.left -= int64(n); err == nil && c.left == 0 {
		var end []byte
		if end, err = tunnel.ReadLine(c.src, 2); err != nil || len(end) != 2 {
			err = &HeadError{flow.MalformedHeader}
		}
	}
	c.err = early(err)
	return n, nil
}

// Trailer is what came behind the content of a Body that has been read to its end: lines
// of a head, each with its end.
func Trailer(body io.Reader) []byte {
	if c, ok := body.(*chunks); ok {
		return c.trailer
	}
	return nil
}

// next reads the size of a chunk; after the last comes the trailer.
func (c *chunks) next() {
	size, _, err := chunkSize(c.src)
	if c.left = size; err == nil && size == 0 {
		var trailer bytes.Buffer
		if _, err = copyTrailer(&trailer, c.src, false); err == nil {
			c.trailer = bytes.TrimSuffix(trailer.Bytes(), []byte("\r\n"))
			c.err = io.EOF
			return
		}
	}
	c.err = early(err)
}

// early: an end inside a body is no end.
func early(err error) error {
	if err == io.EOF { //nolint:errorlint // the reader's own
		return io.ErrUnexpectedEOF
	}
	return err
}

// Answer is a refusal inside HTTP: both fields of B60 and the sentence as body.
// It is empty for a reason that is only recorded.
func Answer(why flow.Reason) string {
	if why.Status() == 0 {
		return ""
	}
	return AnswerWith(why, "text/plain", why.Sentence()+"\n")
}

// AnswerWith is Answer for a reason that has a status, with a body of another form.
func AnswerWith(why flow.Reason, form, body string) string {
	return fmt.Sprintf("HTTP/1.1 %d %s\r\nBoundary-Reason: %s\r\nProxy-Status: %s\r\nContent-Type: %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s",
		why.Status(), strings.ReplaceAll(why.Token(), "-", " "), why.Sentence(), why.ProxyStatus(""), form, len(body), body)
}

// IsField reports whether name and value make one line of a head, and no other.
func IsField(name, value string) bool { return tunnel.IsToken(name) && tunnel.IsFieldValue(value) }
