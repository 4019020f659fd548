package intercept

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"skep.dev/skep/internal/boundary"
	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/route"
	"skep.dev/skep/internal/secret"
	"skep.dev/skep/internal/secret/authority"
)

// Secrets are those of one cell. All fields but Roots are set.
type Secrets struct {
	Keeper    *secret.Keeper
	Authority *authority.Authority
	Roots     *x509.CertPool // whom the destination has to be signed by; nil: the host's
	Now       func() time.Time
	// Record writes a use or misuse down, why it is refused or None. What it does not
	// write is not sent.
	Record func(ctx context.Context, id flow.ID, host string, use secret.Use, why flow.Reason) error

	open atomic.Int32 // flows
	held room
}

const (
	handshakeTime = 10 * time.Second
	lingerTime    = time.Second // for an answer of ours to arrive
	lingerBytes   = 64 << 10
	http1         = "http/1.1"
	http2         = "h2"

	maxCarried = 256      // flows of one cell at once
	maxHeld    = 32 << 20 // bytes of a cell's bodies and messages that are read whole
)

var (
	errRefused  = errors.New("refused, and answered")
	errIdle     = errors.New("nothing has moved for too long")
	errStopped  = errors.New("nothing more is read")
	errAnswered = errors.New("answered before the request was whole")
)

// Bound tells whether a permitted flow is to be carried here (B123).
func (s *Secrets) Bound(q flow.Request) bool {
	return s != nil && q.Transport == flow.TCP && q.Name != "" && s.Keeper.Bound(q.Name, q.Port)
}

// Carry is boundary.Upstream's for a bound flow. hello is what the agent has sent so far,
// a TLS hello that the permit allows as inner; up is connected, and has nothing sent.
func (s *Secrets) Carry(ctx context.Context, p boundary.Permit, agent, up net.Conn, hello []byte, inner flow.Inner) boundary.End {
	defer s.open.Add(-1)
	if s.open.Add(1) > maxCarried {
		boundary.Reset(agent)
		boundary.Reset(up)
		return boundary.End{Reason: flow.Busy, Inner: inner}
	}
	f := &carried{Secrets: s, ctx: ctx, permit: p, inner: inner}
	f.rawAgent = &side{Conn: agent, f: f, first: hello, sent: &f.down}
	f.rawUp = &side{Conn: up, f: f, sent: &f.up}
	f.touch()
	stop := context.AfterFunc(ctx, func() { f.cut() })
	defer stop()
	why, err := f.run()
	if err != nil && why == flow.None {
		f.cut() // each peer sees a reset
	}
	_ = agent.Close()
	_ = up.Close()
	switch {
	case why != flow.None:
	case ctx.Err() != nil:
		why = flow.Revoked
	case errors.Is(err, errIdle):
		why = flow.IdleTimeout
	default:
		why = boundary.EndedBy(err)
	}
	return boundary.End{Up: f.up.Load(), Down: f.down.Load(), Reason: why, Inner: f.inner}
}

// carried is one such flow.
type carried struct {
	*Secrets
	ctx           context.Context
	permit        boundary.Permit
	inner         flow.Inner // of the hello, with method and path of the request at hand
	rawAgent      *side
	rawUp         *side
	agent, server *tls.Conn
	protocol      string // what the destination has chosen
	in, answers   *bufio.Reader

	up, down atomic.Uint64
	moved    atomic.Int64 // when a byte last moved, Unix nanoseconds
}

func (f *carried) touch() { f.moved.Store(time.Now().UnixNano()) }

// cut ends both connections at once.
func (f *carried) cut() {
	boundary.Reset(f.rawAgent.Conn)
	boundary.Reset(f.rawUp.Conn)
}

// run is the whole life of a flow: the destination first, then the agent, then one
// exchange after the other.
func (f *carried) run() (flow.Reason, error) {
	failed := f.reach()
	if err := f.meet(); err != nil {
		return flow.None, err
	}
	if f.agent.ConnectionState().NegotiatedProtocol == http2 {
		why, err := f.streams(failed)
		if err == nil {
			f.last("")
		}
		return why, err
	}
	f.in = bufio.NewReaderSize(f.agent, 16<<10)
	f.answers = bufio.NewReaderSize(f.server, 16<<10)
	for {
		why, again, err := f.exchange(failed)
		if why != flow.None || err != nil || !again {
			if err == nil {
				f.last("")
			}
			return why, err
		}
	}
}

// reach verifies the destination for the permitted name, and agrees with it on what the
// agent can speak (B126).
func (f *carried) reach() flow.Reason {
	offered := offers(f.inner.ALPN)
	f.protocol = offered[len(offered)-1]
	f.server = tls.Client(f.rawUp, &tls.Config{ServerName: f.permit.Request().Name, RootCAs: f.Roots, MinVersion: tls.VersionTLS12, NextProtos: offered, Time: f.Now})
	ctx, cancel := context.WithTimeout(f.ctx, handshakeTime)
	defer cancel()
	if f.server.HandshakeContext(ctx) != nil {
		return flow.UpstreamTLSFailed
	}
	if f.protocol = f.server.ConnectionState().NegotiatedProtocol; f.protocol == "" {
		f.protocol = http1
	}
	return flow.None
}

// offers are the protocols of an agent's hello that are spoken here, never none.
func offers(alpn string) []string {
	words := strings.Split(alpn, ",")
	switch two := slices.Contains(words, http2); {
	case two && slices.Contains(words, http1):
		return []string{http2, http1}
	case two:
		return []string{http2}
	}
	return []string{http1}
}

// meet is the handshake with the agent.
func (f *carried) meet() error {
	leaf, err := f.Authority.Leaf(f.permit.Request().Name, f.Now())
	if err != nil {
		return err
	}
	f.agent = tls.Server(f.rawAgent, &tls.Config{Certificates: []tls.Certificate{*leaf}, MinVersion: tls.VersionTLS12, NextProtos: []string{f.protocol}, SessionTicketsDisabled: true})
	ctx, cancel := context.WithTimeout(f.ctx, handshakeTime)
	defer cancel()
	return f.agent.HandshakeContext(ctx)
}

// refuse answers the agent in place of the destination (B60, B64).
func (f *carried) refuse(why flow.Reason) (flow.Reason, bool, error) {
	_ = f.rawUp.Conn.Close()
	if why != flow.HeadTimeout {
		f.last(route.Answer(why))
	}
	return why, false, errRefused
}

// last writes the end of what the agent gets, and reads on for a moment: closing with
// unread bytes would reset the connection and take the end with it.
func (f *carried) last(text string) {
	f.rawAgent.stop()
	_, err := io.WriteString(f.agent, text)
	if err = errors.Join(err, f.agent.CloseWrite()); err == nil {
		_ = f.rawAgent.Conn.SetReadDeadline(time.Now().Add(lingerTime))
		_, _ = io.CopyN(io.Discard, f.rawAgent.Conn, lingerBytes)
	}
}

// side is one of the two connections below TLS: it keeps the flow's time and budget.
type side struct {
	net.Conn
	f       *carried
	first   []byte // still to be read
	sent    *atomic.Uint64
	stopped atomic.Bool // nothing is read any more
}

// stop ends a Read that waits, and every later one.
func (s *side) stop() {
	s.stopped.Store(true)
	_ = s.Conn.SetReadDeadline(time.Unix(1, 0))
}

func (s *side) Read(b []byte) (int, error) {
	if len(s.first) > 0 {
		n := copy(b, s.first)
		s.first = s.first[n:]
		return n, nil
	}
	idle := s.f.permit.Idle()
	for {
		_ = s.Conn.SetReadDeadline(time.Now().Add(idle / 4))
		if s.stopped.Load() { // after the deadline, because stop sets both the other way round
			return 0, errStopped
		}
		n, err := s.Conn.Read(b)
		if n > 0 {
			s.f.touch()
			return n, err
		}
		var timeout net.Error
		if !errors.As(err, &timeout) || !timeout.Timeout() {
			return n, err
		}
		if time.Since(time.Unix(0, s.f.moved.Load())) >= idle {
			return 0, errIdle
		}
	}
}

// Write sends all of b as the budget has room for it.
func (s *side) Write(b []byte) (int, error) {
	done := 0
	for done < len(b) {
		room, err := s.f.permit.Bytes().Charge(s.f.ctx, len(b)-done)
		if err != nil {
			return done, err
		}
		_ = s.Conn.SetWriteDeadline(time.Now().Add(s.f.permit.Idle()))
		n, err := s.Conn.Write(b[done : done+room])
		s.f.permit.Bytes().Settle(0, n-room)
		s.sent.Add(uint64(n))
		if done += n; err != nil {
			return done, err
		}
		s.f.touch()
	}
	return done, nil
}
