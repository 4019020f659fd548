// Package relay is the body of `skep-worker keys`: between the sockets that a cell opens
// to what it takes for an ssh-agent, and the agent of the user (L15).
//
// Its laws:
//   - It is given three descriptors, to skepd, the cell's listener and the agent, and can
//     open nothing: no file, no socket, no other program.
//   - A signature is asked for only after skepd has said that its use is recorded.
//   - What one cell asks waits in that cell's relay alone: every count, size and time here
//     has a bound.
//   - It ends with skepd's connection, and that with the cell.
package relay

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"skep.dev/skep/internal/confine"
	"skep.dev/skep/internal/sshagent"
	"skep.dev/skep/internal/sys"
)

// Bounds.
const (
	MaxConns     = 16               // of one cell at one time; more wait to be accepted
	AnswerTime   = 2 * time.Minute  // of the agent, which may ask its user, and of skepd
	MessageTime  = 10 * time.Second // for a message of the cell, from its first byte
	perSecond    = 50               // requests, of all connections; more wait
	burst        = 100
	RefusedEvery = 10 * time.Second // between two records of one kind of refusal; others are counted
)

// Main serves the cell until skepd ends the connection. The first message has the page.
func Main() error {
	skepd, err := sys.Inherited(3, "skepd")
	if err != nil {
		return err
	}
	listener, err := sys.Inherited(4, "listener")
	if err != nil {
		return err
	}
	agent, err := sys.Inherited(5, "agent")
	if err != nil {
		return err
	}
	if err := confine.Files("the relay of keys"); err != nil {
		return err
	}
	err = confine.Calls(confine.Filter(nil,
		"accept4", "recvmsg", "sendmsg", "recvfrom", "sendto", "shutdown", "fstat", "getsockopt", "getsockname", "getpeername",
		"mincore", "getrusage", "prctl",
	))
	if err != nil {
		return fmt.Errorf("confine the relay of keys: %w", err)
	}
	r, err := New(skepd, agent)
	if err != nil {
		return err
	}
	return r.Serve(listener)
}

// New reads the page from skepd. It owns the files.
func New(skepd, agent *os.File) (*Relay, error) {
	buf := make([]byte, sshagent.MaxUse)
	n, err := skepd.Read(buf)
	if err != nil {
		return nil, fmt.Errorf("read the page of a cell: %w", err)
	}
	page := &sshagent.Page{}
	if err := json.Unmarshal(buf[:n], page); err != nil {
		return nil, fmt.Errorf("read the page of a cell: %w", err)
	}
	r := &Relay{page: page, skepd: skepd, agent: agent, answers: make(chan byte), over: make(chan struct{}), refusals: map[string]*refusal{}}
	r.tokens, r.filled, r.now = burst, time.Now(), time.Now
	return r, nil
}

var errLong = errors.New("a message is longer than it may be")

// message reads one message of at most limit bytes: a length and as many bytes.
func message(from io.Reader, limit uint32) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(from, head[:]); err != nil {
		return nil, err
	}
	return body(from, head, limit)
}

func body(from io.Reader, head [4]byte, limit uint32) ([]byte, error) {
	n := binary.BigEndian.Uint32(head[:])
	if n > limit {
		return nil, errLong
	}
	m := make([]byte, n)
	_, err := io.ReadFull(from, m)
	return m, err
}

func send(to io.Writer, m []byte) error {
	_, err := to.Write(append(binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(m)), uint32(len(m))), m...))
	return err
}
