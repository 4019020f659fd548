// Package handover passes descriptors beside the API, which carries none: over
// RUN/fd.sock, a seqpacket unix socket, each message one request or answer.
//
//	client                                    desk (skepd)
//	{"v":1,"op":"offer","roles":[...]} + fds ->
//	                                         <-  {"ticket":"..."}
//	{"v":1,"op":"fetch","ticket":"..."}      ->
//	                                         <-  {"roles":[...]} + fds
//
// Its laws:
//   - A ticket is 128 random bits, good once, for thirty seconds, and for the uid
//     that it was made for (L6b). The kernel says who that is.
//   - Only the owner of the desk and root may speak to it; anyone else is hung up
//     on before a byte is read.
//   - A message is strict: an unknown field, a descriptor without a role or a role
//     without its descriptor refuses all of it, and what came is closed.
package handover

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"skep.dev/skep/internal/sys"
)

// Bounds of what a ticket may hold and how long.
const (
	Version    = 1
	MaxFiles   = sys.MaxPassedFDs
	MaxMessage = 128 << 10 // bytes
	Valid      = 30 * time.Second
	maxTickets = 64 // of one desk at one time
)

// The errors that callers tell apart.
var (
	ErrTicket = errors.New("no such ticket: it is used, expired, or another user's")
	ErrFull   = errors.New("too many tickets are waiting: try again in half a minute")
)

// The roles that there are.
const (
	RolePath  = "path"  // a path of the plan, or a symlink on the way to one, opened O_PATH
	RoleStdio = "stdio" // the caller's end of the agent's input and output
	RoleAgent = "agent" // a connection to the caller's ssh-agent
	RoleLayer = "layer" // the socket of a layer process, for the caller

	RoleForward = "forward"    // a channel to a cell's box, for the cell's owner
	RoleSecret  = "secret"     // the source of the secret that Path names, opened to be read
	RoleDir     = "secret-dir" // the directory of that source, opened O_PATH: who replaces it does so there
)

// Role says what the descriptor at the same place is for.
type Role struct {
	Role string `json:"role"`
	Path string `json:"path,omitempty"`
}

// Bundle is descriptors with their roles. Whoever holds it owns the files.
type Bundle struct {
	Roles []Role
	Files []*os.File
}

// Close closes the files.
func (b *Bundle) Close() {
	if b != nil {
		sys.CloseAll(b.Files)
	}
}

// Take removes the first descriptor with that role and path from the bundle and
// gives it to the caller; nil if there is none.
func (b *Bundle) Take(role, path string) *os.File {
	for i, r := range b.Roles {
		if r.Role == role && r.Path == path && b.Files[i] != nil {
			f := b.Files[i]
			b.Files[i] = nil
			return f
		}
	}
	return nil
}

// request and answer are the messages.
type request struct {
	V      int    `json:"v"`
	Op     string `json:"op"`
	Roles  []Role `json:"roles,omitempty"`
	Ticket string `json:"ticket,omitempty"`
}

type answer struct {
	Ticket string `json:"ticket,omitempty"`
	Roles  []Role `json:"roles,omitempty"`
	Error  string `json:"error,omitempty"`
}

func decode(msg []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(msg))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return fmt.Errorf("read handover message: %w", err)
	}
	if d.More() {
		return errors.New("read handover message: bytes after its end")
	}
	return nil
}

// send writes a message and its descriptors.
func send(conn *os.File, v any, files []*os.File) error {
	msg, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if len(msg) > MaxMessage {
		return fmt.Errorf("handover message of %d bytes is longer than %d: grant fewer or shorter paths", len(msg), MaxMessage)
	}
	return sys.SendFDs(conn, msg, files...)
}
