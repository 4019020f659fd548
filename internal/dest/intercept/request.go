package intercept

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"skep.dev/skep/internal/boundary"
	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/name"
	"skep.dev/skep/internal/route"
	"skep.dev/skep/internal/secret"
)

// exchange is one request and its answer. again: another may come.
func (f *carried) exchange(failed flow.Reason) (why flow.Reason, again bool, err error) {
	a := &answer{f: f, request: make(chan asked, 1), over: make(chan struct{})}
	if failed == flow.None {
		go a.relay()
		defer func() { <-a.over }()
		defer func() { // whatever is still awaited
			if !again {
				_ = f.rawUp.Conn.Close()
			}
		}()
	}
	h, head, why, err := f.next()
	if err != nil || why != flow.None {
		switch {
		case why != flow.None && err == nil:
			return f.refuse(why)
		case err != nil && (errors.Is(err, io.EOF) || a.ended.Load()):
			return flow.None, false, nil // one of the two has left between two requests
		}
		return why, false, err
	}
	if failed != flow.None {
		return f.refuse(failed)
	}
	return f.forward(a, h, head)
}

// next reads one head and judges it. An end between two requests is an error of nothing
// but io.EOF.
func (f *carried) next() (route.Head, secret.Head, flow.Reason, error) {
	if _, err := f.in.Peek(1); err != nil {
		return route.Head{}, secret.Head{}, flow.None, err
	}
	late := time.AfterFunc(boundary.FirstBytesTime, func() { boundary.Reset(f.rawAgent.Conn) })
	h, err := route.ReadHead(f.in, f.permit.Request().Port, true)
	if !late.Stop() {
		return h, secret.Head{}, flow.HeadTimeout, err
	}
	var fault *route.HeadError
	if errors.As(err, &fault) {
		return h, secret.Head{}, fault.Reason, nil
	}
	if err != nil {
		return h, secret.Head{}, flow.None, err
	}
	raw := h.Raw
	if id := f.permit.Correlate(); id != "" {
		raw = h.With("X-Skep-Flow", id)
	}
	head, why := secret.ReadHead(raw)
	if why != flow.None {
		return h, head, why, nil
	}
	f.inner.Method, f.inner.Path = h.Inner.Method, h.Inner.Path
	if v := f.permit.DecideInner(f.inner); !v.Allowed() {
		return h, head, v.Refusal(), nil
	}
	head.Fields = slices.DeleteFunc(head.Fields, func(f secret.Field) bool { return strings.EqualFold(f.Name, "sec-websocket-extensions") })
	if !f.names(field(head, "host")) {
		return h, head, flow.HTTPHostMismatch, nil
	}
	return h, head, flow.None, nil
}

// names tells whether a Host or :authority is the permitted name, with the flow's port
// or, for 443, without one (B127).
func (f *carried) names(authority string) bool {
	q := f.permit.Request()
	host, port, has := strings.Cut(authority, ":")
	if !has {
		port = "443"
	}
	normal, err := name.Host(host)
	return err == nil && normal == q.Name && port == strconv.Itoa(int(q.Port))
}

func field(h secret.Head, key string) string {
	for _, f := range h.Fields {
		if strings.EqualFold(f.Name, key) {
			return string(f.Value)
		}
	}
	return ""
}

// forward fills a request in, records that, and sends it, while its answer is relayed.
func (f *carried) forward(a *answer, h route.Head, agents secret.Head) (flow.Reason, bool, error) {
	q := f.permit.Request()
	head, uses, why := f.Keeper.Head(q.Name, q.Port, f.Now(), agents)
	if why != flow.None {
		return f.misuse(uses, why)
	}
	defer head.Wipe()
	var body []byte
	whole := f.Keeper.InBody(q.Name, q.Port, agents)
	if whole {
		need := 4 * secret.MaxBody // as it is, filled in, and what is left of it beside that
		if !h.Chunked {
			need = int(min(4*h.Length, int64(need)))
		}
		if !f.held.Take(need) {
			return f.refuse(flow.Busy)
		}
		defer f.held.Give(need)
		read, err := f.wholeBody(h, agents)
		if err != nil {
			return flow.None, false, err
		}
		filled, more, why := f.Keeper.Body(q.Name, q.Port, f.Now(), agents, read)
		if why != flow.None {
			return f.misuse(more, why)
		}
		defer clear(filled)
		body, uses = filled, append(uses, more...)
		head = measured(head, len(body))
	}
	for _, use := range uses {
		if f.Record(f.ctx, q.ID, q.Name, use, flow.None) != nil {
			return f.refuse(flow.RecordUnavailable)
		}
	}
	a.request <- asked{method: h.Inner.Method, upgrade: h.Upgrade}
	raw := head.Bytes()
	defer clear(raw)
	text := append(raw, body...)
	defer clear(text)
	if _, err := f.server.Write(text); err != nil {
		return flow.None, false, fmt.Errorf("send a request: %w", err)
	}
	if !whole {
		if why, use, err := f.stream(a, h, agents); why != flow.None {
			_ = f.Record(f.ctx, q.ID, q.Name, use, why)
			boundary.Reset(f.rawUp.Conn)
			if <-a.over; a.begun {
				return why, false, errRefused
			}
			return f.refuse(why)
		} else if err != nil && !errors.Is(err, errAnswered) {
			return flow.None, false, err
		} else if err != nil {
			<-a.over
			return a.why, false, a.err
		}
	}
	<-a.over
	if a.err == nil && a.upgraded != "" {
		why, err := f.leave(a.upgraded, secret.At{Host: q.Name, Port: q.Port, Path: agents.Path()})
		return why, false, err
	}
	return a.why, a.err == nil && a.why == flow.None && a.again, a.err
}

// misuse records a refusal and answers it.
func (f *carried) misuse(uses []secret.Use, why flow.Reason) (flow.Reason, bool, error) {
	q := f.permit.Request()
	for _, use := range uses {
		_ = f.Record(f.ctx, q.ID, q.Name, use, why) // refused either way
	}
	return f.refuse(why)
}

// wholeBody reads a body in which a place may be, and one byte more than it may have. An
// agent that waits to be told is told: no answer of the destination is under way.
func (f *carried) wholeBody(h route.Head, agents secret.Head) ([]byte, error) {
	if strings.EqualFold(field(agents, "expect"), "100-continue") {
		if _, err := io.WriteString(f.agent, "HTTP/1.1 100 Continue\r\n\r\n"); err != nil {
			return nil, err
		}
	}
	return io.ReadAll(io.LimitReader(route.Body(f.in, h), secret.MaxBody+1))
}

// measured gives a head the length of its body, and nothing else that says it.
func measured(h secret.Head, length int) secret.Head {
	var fields []secret.Field
	for _, f := range h.Fields {
		switch strings.ToLower(f.Name) {
		case "content-length", "transfer-encoding", "expect", "trailer":
		default:
			fields = append(fields, f)
		}
	}
	h.Fields = append(fields, secret.Field{Name: "Content-Length", Value: strconv.AppendInt(nil, int64(length), 10)})
	return h
}

// stream sends a body on in the pieces that come, each looked at first.
func (f *carried) stream(a *answer, h route.Head, agents secret.Head) (flow.Reason, secret.Use, error) {
	q := f.permit.Request()
	stray := f.Keeper.Stray(secret.At{Host: q.Name, Port: q.Port, Path: agents.Path()})
	w := pieces{to: f.server, chunked: h.Chunked}
	src, buf := route.Body(f.in, h), make([]byte, 16<<10)
	for {
		n, err := src.Read(buf)
		if why, use := stray.Feed(buf[:n]); why != flow.None {
			return why, use, nil
		}
		if werr := w.write(buf[:n]); werr != nil {
			return flow.None, secret.Use{}, errors.Join(errAnswered, werr)
		}
		switch {
		case err == io.EOF:
			last := trailer(src)
			if why, use := stray.Feed(last); why != flow.None {
				return why, use, nil
			}
			return flow.None, secret.Use{}, w.end(nil, last)
		case err != nil && a.ended.Load():
			return flow.None, secret.Use{}, errAnswered
		case err != nil:
			return flow.None, secret.Use{}, fmt.Errorf("body of a request: %w", err)
		}
	}
}

// pieces writes content, each piece at once, as chunks where it has no length.
type pieces struct {
	to      io.Writer
	chunked bool
}

func (p pieces) write(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	if p.chunked {
		b = append(append(fmt.Appendf(nil, "%x\r\n", len(b)), b...), "\r\n"...)
	}
	_, err := p.to.Write(b)
	return err
}

// end writes the last piece and, behind chunks, the trailer.
func (p pieces) end(rest, trailer []byte) error {
	if err := p.write(rest); err != nil || !p.chunked {
		return err
	}
	_, err := p.to.Write(slices.Concat([]byte("0\r\n"), trailer, []byte("\r\n")))
	return err
}

// trailer is that of a body that has been read, without the fields by which somebody
// might find another end of it, or another host.
func trailer(body io.Reader) []byte {
	var keep []byte
	for line := range bytes.Lines(route.Trailer(body)) {
		switch name, _, _ := strings.Cut(string(line), ":"); strings.ToLower(name) {
		case "host", "content-length", "transfer-encoding", "content-encoding", "connection", "upgrade", "te", "trailer", "expect":
		default:
			keep = append(keep, line...)
		}
	}
	return keep
}
