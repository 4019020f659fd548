// Package keys stands behind the relay between a cell and its owner's ssh-agent (L15).
//
// Its laws:
//   - The agent comes as a connection that the owner's own program made; no path to it is
//     known here, and nothing of it is read here.
//   - A signature is made only after the word of it is durable, with the key's fingerprint.
//   - The relay ends with its cell, and so does its socket in the cell.
package keys

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/internal/cell"
	"skep.dev/skep/internal/handover/bequest"
	"skep.dev/skep/internal/ledger/kind"
	"skep.dev/skep/internal/profile"
	"skep.dev/skep/internal/sshagent"
	"skep.dev/skep/internal/sys"
)

// Socket is the name of the socket in its directory.
const Socket = "agent"

// Variable is what the cell finds it by.
func Variable() string { return profile.AgentVariable + "=" + cell.KeysDir + "/" + Socket }

// Page is what a profile grants, with the keys of its hosts. A host whose keys the
// caller's ssh does not know is an error that says so.
func Page(p *profile.Profile, known []*skepv1.HostKey) (*sshagent.Page, error) {
	page := &sshagent.Page{Keys: p.Agent.Keys, Bound: len(p.Agent.Hosts) > 0}
	for _, host := range p.Agent.Hosts {
		before := len(page.Hosts)
		for _, k := range known {
			if k.Host == host && len(k.Key) > 0 {
				page.Hosts = append(page.Hosts, sshagent.HostKey{Host: host, Blob: k.Key})
			}
		}
		if len(page.Hosts) == before {
			return nil, fmt.Errorf("agent_socket (line %d of %s): your ssh knows no key of %s, so no signature could be held to it; connect once by ssh, or add it to ~/.ssh/known_hosts",
				p.Line("agent_socket"), p.File, strings.TrimSuffix(host, ":22"))
		}
	}
	return page, nil
}

// Record makes the word of a use durable.
type Record func(kind.Body) error

// Relay is what one cell has.
type Relay struct {
	record  Record
	page    *sshagent.Page
	dir     string
	conn    *os.File
	process cell.Process
	idle    chan struct{} // closed when nothing reads conn any more
}

// Start makes the socket in the directory at a path and starts the process behind it. The
// agent stays the caller's.
func Start(ctx context.Context, driver cell.Driver, dir string, page *sshagent.Page, agent *os.File, record Record) (_ *Relay, err error) {
	d, ok := driver.(cell.KeyRelay)
	if !ok {
		return nil, errors.New("this driver has no relay for an ssh-agent")
	}
	listener, err := sys.ListenUnix(filepath.Join(dir, Socket), sys.Stream)
	if err != nil {
		return nil, err
	}
	defer func() { _ = listener.Close() }()
	ours, theirs, err := sys.SeqpacketPair()
	if err != nil {
		return nil, err
	}
	defer func() {
		_ = theirs.Close()
		if err != nil {
			_ = ours.Close()
		}
	}()
	text, err := json.Marshal(page)
	if err != nil {
		return nil, fmt.Errorf("write the page of a relay: %w", err)
	}
	if len(text) > sshagent.MaxUse {
		return nil, errors.New("agent_socket has too many hosts, with too long keys")
	}
	if _, err := ours.Write(text); err != nil {
		return nil, fmt.Errorf("tell a relay its page: %w", err)
	}
	p, err := d.Keys(ctx, theirs, listener, agent)
	if err != nil {
		return nil, fmt.Errorf("start the relay of keys: %w", err)
	}
	r := &Relay{record: record, page: page, dir: dir, conn: ours, process: p}
	r.serve()
	return r, nil
}

func (r *Relay) serve() {
	r.idle = make(chan struct{})
	go func() {
		defer close(r.idle)
		buf := make([]byte, sshagent.MaxUse)
		for {
			n, err := r.conn.Read(buf)
			if err != nil {
				return
			}
			if _, err := r.conn.Write([]byte{r.judge(buf[:n])}); err != nil {
				return
			}
		}
	}()
}

// judge records one use. What the relay has judged is judged again as far as it can be.
func (r *Relay) judge(message []byte) byte {
	var u sshagent.Use
	if json.Unmarshal(message, &u) != nil {
		return sshagent.Denied
	}
	if u.Reason == "" && !r.may(u) {
		u.Reason = "key-not-granted"
	}
	body := &kind.SecretUsed{Secret: strings.TrimSpace(Prefix + u.Key), Host: kind.Bytes(u.Host), Placement: placement(u), Decision: "allow", Reason: u.Reason}
	if u.Reason != "" {
		body.Decision = "block"
	}
	if r.record(body) != nil || u.Reason != "" {
		return sshagent.Denied
	}
	return sshagent.Granted
}

// Prefix begins what a key is called in the record.
const Prefix = "ssh-agent "

func placement(u sshagent.Use) string {
	text := "agent_socket: " + u.Did
	if u.Count > 1 {
		text += fmt.Sprintf(", %d times", u.Count)
	}
	return text
}

func (r *Relay) may(u sshagent.Use) bool {
	host := !r.page.Bound || slices.ContainsFunc(r.page.Hosts, func(h sshagent.HostKey) bool { return h.Host == u.Host })
	return u.Key != "" && r.page.Grants(u.Key) && host
}

// Close ends the relay, and removes its socket. Nil is none.
func (r *Relay) Close() {
	if r == nil {
		return
	}
	_ = r.conn.Close()
	_ = r.process.Kill()
	_ = os.Remove(filepath.Join(r.dir, Socket))
}

// Left is a relay as it is left to another skepd (L20a).
type Left struct {
	Page    *sshagent.Page  `json:"page"`
	Conn    bequest.FD      `json:"conn"`
	Process json.RawMessage `json:"process"`
}

// Pause stops reading: what the relay asks waits for Resume, here or in another skepd.
func (r *Relay) Pause(ctx context.Context) error {
	if r == nil {
		return nil
	}
	_ = r.conn.SetReadDeadline(time.Unix(1, 0))
	select {
	case <-r.idle:
		return nil
	case <-ctx.Done():
		r.Resume()
		return fmt.Errorf("wait for the use of a key: %w", ctx.Err())
	}
}

// Resume goes on after Pause.
func (r *Relay) Resume() {
	if r == nil {
		return
	}
	_ = r.conn.SetReadDeadline(time.Time{})
	select {
	case <-r.idle:
		r.serve()
	default: // it never stopped
	}
}

// Leave describes a paused sshagent. Nil is none.
func (r *Relay) Leave(e *bequest.Estate) (*Left, error) {
	if r == nil {
		return nil, nil
	}
	p, ok := r.process.(cell.Leaver)
	if !ok {
		return nil, errors.New("the driver's processes cannot be left to another skepd")
	}
	process, err := p.Leave(e)
	if err != nil {
		return nil, err
	}
	return &Left{Page: r.page, Conn: e.Leave(r.conn), Process: process}, nil
}

// Inherit goes on with what another skepd left.
func Inherit(l *Left, dir string, driver cell.Inheritor, h *bequest.Heir, record Record) (*Relay, error) {
	if l == nil {
		return nil, nil
	}
	p, err := driver.InheritProcess(l.Process, h)
	conn := h.Need(l.Conn, "relay of keys")
	if err = errors.Join(err, h.Err()); err != nil {
		return nil, err
	}
	r := &Relay{record: record, page: l.Page, dir: dir, conn: conn, process: p}
	r.serve()
	return r, nil
}

// Check refuses what is no connection to an agent: anything but a stream unix socket.
func Check(agent *os.File) error {
	c, err := net.FileConn(agent)
	if err != nil {
		return fmt.Errorf("agent_socket: what came for your ssh-agent is no socket: %w", err)
	}
	defer func() { _ = c.Close() }()
	if _, ok := c.(*net.UnixConn); !ok || c.RemoteAddr().Network() != "unix" {
		return errors.New("agent_socket: what came for your ssh-agent is no unix socket")
	}
	return nil
}
