package internet

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"skep.dev/skep/internal/boundary"
	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/route"
)

const (
	lingerTime  = time.Second     // for an answer of ours to arrive
	finishTime  = 2 * time.Second // for the server to finish earlier answers
	lingerBytes = 64 << 10
)

// alertDenied is a fatal TLS alert access_denied in plaintext (RFC 8446, 6.2; B64).
const alertDenied = "\x15\x03\x01\x00\x02\x02\x31"

// checkFirst reads the agent's first message, decides again, and only then sends
// it on (B110, B111, B115). An error means that the flow is over; with a reason
// the agent has been answered.
func (r *relay) checkFirst() (flow.Reason, error) {
	first, err := r.readFirst()
	switch {
	case err != nil && len(first.Bytes()) == 0 && errors.Is(err, io.EOF):
		return flow.None, nil // the agent only listens; the end is passed on
	case err != nil && len(first.Bytes()) == 0:
		return flow.None, err
	case err != nil:
		// Too large, too slow or cut off in the middle of a hello: it named nobody.
		first.Inner = flow.Inner{Protocol: flow.TLS}
	}
	r.inner = first.Inner
	if v := r.permit.DecideInner(first.Inner); !v.Allowed() {
		answer := ""
		if first.Inner.Protocol == flow.TLS {
			answer = alertDenied
		}
		r.answer(answer)
		return v.Refusal(), errRefused
	}
	err = r.send(r.up, first.Bytes(), &r.meter.Up)
	r.meter.Touch()
	return flow.None, err
}

// readFirst waits for the agent's first message, which then has to be whole in time.
func (r *relay) readFirst() (*route.First, error) {
	_ = r.agent.SetReadDeadline(time.Now().Add(r.idle / 4))
	agent := &silent{r: r}
	return route.ReadFirst(agent, func() {
		agent.spoke = true
		_ = r.agent.SetReadDeadline(time.Now().Add(boundary.FirstBytesTime))
	})
}

// silent is the agent before its first byte: waiting for that ends only when the
// whole flow has been idle for too long.
type silent struct {
	r     *relay
	spoke bool
}

func (s *silent) Read(b []byte) (int, error) {
	for {
		n, err := s.r.agent.Read(b)
		if n > 0 || s.spoke || !isTimeout(err) {
			return n, err
		}
		if s.r.isIdle() {
			return 0, errIdle
		}
		if err := s.r.agent.SetReadDeadline(time.Now().Add(s.r.idle / 4)); err != nil {
			return 0, err
		}
	}
}

// serveHTTP reads every request head on the connection (B112). The server's
// bytes are relayed as they come; only after a first request that asks to leave
// HTTP are its answers read, to see whether it may.
func (r *relay) serveHTTP() (flow.Reason, error) {
	in := bufio.NewReaderSize(r.agent, 16<<10)
	for first := true; ; first = false {
		if err := r.await(in); err != nil {
			if first {
				r.startDown(nil)
			}
			if errors.Is(err, io.EOF) {
				_ = r.up.CloseWrite()
				return flow.None, nil
			}
			return flow.None, err
		}
		h, err := route.ReadHead(in, r.permit.Request().Port, first)
		why := r.judge(&h, err)
		var stray func([]byte) flow.Reason
		if why == flow.None && err == nil {
			if stray = r.strays(h.Inner.Path); stray != nil {
				why = stray(h.Raw)
			}
		}
		if why != flow.None {
			r.refuseHTTP(why, first)
			return why, errRefused
		}
		if err == nil {
			err = r.forward(in, h, stray)
		}
		var found *strayError
		if errors.As(err, &found) {
			r.answer(route.Answer(found.why))
			return found.why, errRefused
		}
		upgraded := false
		if first {
			var ahead []byte
			if err == nil && h.Upgrade {
				ahead, upgraded, err = r.upgraded()
			}
			r.startDown(ahead)
		}
		switch {
		case err != nil:
			return flow.None, err
		case upgraded:
			return flow.None, r.opaque(in)
		}
	}
}

// judge is the second decision for one head; None lets it through. A reader's
// error that is no fault of the head is left to the caller.
func (r *relay) judge(h *route.Head, err error) flow.Reason {
	var fault *route.HeadError
	if errors.As(err, &fault) {
		if fault.Reason == flow.HTTPRequired {
			h.Inner = flow.Inner{Protocol: flow.Opaque}
		}
		r.inner = h.Inner
		return fault.Reason
	}
	if isTimeout(err) {
		return flow.HeadTimeout
	}
	if err != nil {
		return flow.None
	}
	r.inner = h.Inner
	if v := r.permit.DecideInner(h.Inner); !v.Allowed() {
		return v.Refusal()
	}
	return flow.None
}

// await waits for the next request; between requests only idleness ends it.
func (r *relay) await(in *bufio.Reader) error {
	for {
		_ = r.agent.SetReadDeadline(time.Now().Add(r.idle / 4))
		_, err := in.Peek(1)
		switch {
		case err == nil:
			return r.agent.SetReadDeadline(time.Now().Add(boundary.FirstBytesTime))
		case !isTimeout(err):
			return err
		case r.isIdle():
			return errIdle
		}
	}
}

func (r *relay) forward(in *bufio.Reader, h route.Head, stray func([]byte) flow.Reason) error {
	if r.permit.Strips() {
		h = h.WithoutCredentials()
	}
	head := h.Raw
	if id := r.permit.Correlate(); id != "" {
		head = h.With("X-Skep-Flow", id)
	}
	if err := r.send(r.up, head, &r.meter.Up); err != nil {
		return err
	}
	r.meter.Touch()
	_ = r.agent.SetReadDeadline(time.Now().Add(r.idle))
	_, err := route.CopyBody(counted{r, stray}, in, h)
	var fault *route.HeadError
	if errors.As(err, &fault) {
		return fmt.Errorf("body of a request: %w", err)
	}
	return err
}

// upgraded passes the server's answers on until a final one. Only 101 leaves
// HTTP. What was read ahead is returned, still to be sent to the agent.
func (r *relay) upgraded() ([]byte, bool, error) {
	_ = r.up.SetReadDeadline(time.Now().Add(r.idle))
	out := bufio.NewReaderSize(r.up, 16<<10)
	for passed := 0; ; {
		head, status, err := answerHead(out, route.MaxInnerHead-passed)
		if err != nil {
			return nil, false, fmt.Errorf("read the answer to an upgrade: %w", err)
		}
		passed += len(head)
		if err := r.send(r.agent, head, &r.meter.Down); err != nil {
			return nil, false, err
		}
		r.meter.Touch()
		if status == 101 || status < 100 || status > 199 {
			ahead, _ := out.Peek(out.Buffered())
			return ahead, status == 101, nil
		}
	}
}

// answerHead reads one answer head of at most max bytes, and its status.
func answerHead(r *bufio.Reader, max int) ([]byte, int, error) {
	var head []byte
	status := -1
	for {
		line, err := r.ReadSlice('\n')
		head = append(head, line...)
		switch {
		case err != nil:
			return nil, 0, err
		case len(head) > max:
			return nil, 0, errors.New("answer head is too large")
		case status < 0:
			status = statusCode(string(line))
		}
		if strings.TrimRight(string(line), "\r\n") == "" {
			return head, status, nil
		}
	}
}

func statusCode(line string) int {
	parts := strings.SplitN(strings.TrimSpace(line), " ", 3)
	if len(parts) < 2 || !strings.HasPrefix(parts[0], "HTTP/1.") {
		return 0
	}
	code, err := strconv.Atoi(parts[1])
	if err != nil {
		return 0
	}
	return code
}

// opaque relays after an upgrade: first what was read ahead, then the rest.
func (r *relay) opaque(in *bufio.Reader) error {
	ahead, _ := in.Peek(in.Buffered())
	if err := r.send(r.up, ahead, &r.meter.Up); err != nil {
		return err
	}
	return r.pumpUp()
}

// refuseHTTP answers the agent over HTTP (B64), after the server has finished
// what came before. What is not HTTP, or not whole in time, is closed without a
// word (B150).
func (r *relay) refuseHTTP(why flow.Reason, first bool) {
	if !first {
		r.hold()
		_ = r.up.CloseWrite()
		stop := time.AfterFunc(finishTime, r.flow.Stop)
		_ = r.flow.Down()
		stop.Stop()
	}
	text := route.Answer(why)
	if why == flow.HeadTimeout {
		text = ""
	}
	r.linger(text)
}

// answer ends the server's side and gives the agent one last message.
func (r *relay) answer(text string) {
	r.hold()
	r.flow.Stop()
	_ = r.up.Close()
	r.linger(text)
}

// hold leaves the agent's end to us.
func (r *relay) hold() {
	r.answering.Store(true)
	r.flow.Hold()
}

// linger writes and then reads on for a moment: closing with unread bytes would
// reset the connection and take the answer with it.
func (r *relay) linger(text string) {
	_ = r.agent.SetDeadline(time.Now().Add(lingerTime))
	if _, err := io.WriteString(r.agent, text); err == nil {
		_ = r.agent.CloseWrite()
		_, _ = io.CopyN(io.Discard, r.agent, lingerBytes)
	}
}

// counted is the server as a writer of body bytes. The agent's deadline moves on
// with each piece, so that slow is not idle.
type counted struct {
	r     *relay
	stray func([]byte) flow.Reason // may be nil
}

func (c counted) Write(b []byte) (int, error) {
	if c.stray != nil {
		if why := c.stray(b); why != flow.None {
			return 0, &strayError{why}
		}
	}
	if err := c.r.send(c.r.up, b, &c.r.meter.Up); err != nil {
		return 0, err
	}
	c.r.meter.Touch()
	_ = c.r.agent.SetReadDeadline(time.Now().Add(c.r.idle))
	return len(b), nil
}
