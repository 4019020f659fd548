package intercept

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync/atomic"

	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/route"
	"skep.dev/skep/internal/secret"
	"skep.dev/skep/internal/tunnel"
)

const maxAnswerHead = 64 << 10

// asked is the request that an answer is for.
type asked struct {
	method  string
	upgrade bool
}

// answer is that to one request. It is awaited before the request is there, so that an
// idle destination that leaves is noticed.
type answer struct {
	f       *carried
	request chan asked
	ended   atomic.Bool   // nothing more of it will come
	over    chan struct{} // closed when all below is set

	begun    bool   // some of it has passed
	again    bool   // the connection may have another
	upgraded string // what is spoken from now on instead of HTTP, in lower case
	why      flow.Reason
	err      error
}

var errUnasked = errors.New("an answer that nobody has asked for")

// relay passes the answer on. After the last one of the connection, or a failure, the
// agent is not read any more.
func (a *answer) relay() {
	defer close(a.over)
	a.err = a.pass()
	if errors.Is(a.err, secret.ErrReflected) {
		a.why = flow.SecretReflected
		a.f.cut()
	}
	a.ended.Store(true)
	if a.err != nil || !a.again && a.upgraded == "" {
		a.f.rawAgent.stop()
	}
}

func (a *answer) pass() error {
	in := a.f.answers
	if _, err := in.Peek(1); err != nil {
		return err
	}
	var q asked
	select {
	case q = <-a.request:
	default:
		return errUnasked
	}
	for {
		h, err := readAnswer(in)
		if err != nil {
			return err
		}
		if h.status == 101 && (!q.upgrade || h.upgrade == "" || h.extended) {
			return errUnasked
		}
		if err := a.watched(strings.NewReader(h.raw), pieces{to: a.f.agent}); err != nil {
			return err
		}
		a.begun = h.status >= 200 || h.status == 101 // a refusal may still follow the others
		switch {
		case h.status == 101:
			a.upgraded = h.upgrade
			return nil
		case h.status < 200:
			continue
		}
		a.again = h.again
		if q.method == "HEAD" || h.status == 204 || h.status == 304 {
			return nil
		}
		return a.watched(h.body(in), pieces{to: a.f.agent, chunked: h.chunked})
	}
}

// watched passes a text on, each piece at once, until a value comes (B130), and so its
// trailer. What is held back is passed on at the end: then it was none.
func (a *answer) watched(src io.Reader, to pieces) error {
	q := a.f.permit.Request()
	w := a.f.Keeper.Watch(q.Name, q.Port)
	defer w.Close()
	buf := make([]byte, 16<<10)
	for {
		n, err := src.Read(buf)
		text, found := w.Feed(buf[:n])
		if found != nil {
			return found
		}
		if err := to.write(text); err != nil {
			return err
		}
		switch {
		case err == io.EOF:
			rest := w.Rest()
			trailer, found := w.Feed(trailer(src))
			if found != nil {
				return found
			}
			return to.end(rest, append(trailer, w.Rest()...))
		case err != nil:
			return fmt.Errorf("read an answer: %w", err)
		}
	}
}

// answered is the head of an answer.
type answered struct {
	raw     string
	status  int
	chunked bool
	length  int64 // -1: until the destination closes
	again   bool

	upgrade  string // in lower case
	extended bool   // extensions of a WebSocket, for which nobody has asked
}

func (h answered) body(in *bufio.Reader) io.Reader {
	if h.chunked || h.length >= 0 {
		return route.Body(in, route.Head{Chunked: h.chunked, Length: h.length})
	}
	return in
}

// readAnswer reads one head, strictly: where two readers might find the end of an answer
// in two places, a value could hide.
func readAnswer(in *bufio.Reader) (answered, error) {
	h := answered{length: -1}
	var lines []string
	for {
		line, err := tunnel.ReadLine(in, maxAnswerHead-len(h.raw))
		if err != nil {
			return h, fmt.Errorf("read the head of an answer: %w", err)
		}
		text := strings.TrimSuffix(string(line), "\r\n")
		if text != "" {
			lines = append(lines, text)
		}
		if h.raw = strings.Join(lines, "\r\n") + "\r\n\r\n"; text == "" {
			break
		}
	}
	parts := strings.SplitN(lines0(lines), " ", 3)
	if len(parts) < 2 || parts[0] != "HTTP/1.1" && parts[0] != "HTTP/1.0" || len(parts[1]) != 3 {
		return h, errors.New("an answer that is not HTTP/1.1")
	}
	status, err := strconv.ParseUint(parts[1], 10, 16)
	if err != nil || status < 100 {
		return h, errors.New("an answer without a status")
	}
	h.status, h.again = int(status), parts[0] == "HTTP/1.1"
	return h.framed(lines[1:])
}

func lines0(lines []string) string {
	if len(lines) == 0 {
		return ""
	}
	return lines[0]
}

// framed finds how long the body is (RFC 9112, 6.3).
func (h answered) framed(lines []string) (answered, error) {
	codings, lengths := 0, 0
	for _, line := range lines {
		key, value, ok := strings.Cut(line, ":")
		if !ok || !route.IsField(key, value) {
			return h, errors.New("an answer with a line that is no field")
		}
		switch value = strings.ToLower(strings.Trim(value, " \t")); strings.ToLower(key) {
		case "transfer-encoding":
			codings++
			if h.chunked = value == "chunked"; !h.chunked {
				return h, errors.New("an answer in a transfer coding that is not chunked")
			}
		case "content-length":
			n, err := strconv.ParseUint(value, 10, 62)
			if err != nil {
				return h, errors.New("an answer of no length")
			}
			lengths++
			h.length = int64(n)
		case "upgrade":
			h.upgrade = value
		case "sec-websocket-extensions":
			h.extended = true
		case "connection":
			h.again = h.again && !strings.Contains(value, "close")
		}
	}
	if codings+lengths > 1 {
		return h, errors.New("an answer of two lengths")
	}
	h.again = h.again && codings+lengths == 1 || h.status == 204 || h.status == 304
	return h, nil
}
