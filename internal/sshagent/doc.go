// Package sshagent judges what a cell asks of the user's ssh-agent (L15): the agent
// protocol of draft-ietf-sshm-ssh-agent, read strictly.
//
// Its laws:
//   - Two requests go on to the agent, which are to list identities and to sign. Both are
//     written anew from what was understood: no byte of a cell's own message goes on.
//   - A key that the page does not name is neither shown nor used.
//   - Where the page names hosts, only a signature goes on that logs in at one of them: to a
//     session which the connection was bound to by that host's own key and signature.
//   - What is not understood is refused. Nothing here opens, reads or waits.
package sshagent

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
)

// Bounds.
const (
	MaxRequest = 32 << 10  // bytes of a message of the cell
	MaxReply   = 256 << 10 // bytes of a message of the agent, as OpenSSH has it
	MaxBinds   = 16        // sessions that one connection is bound to
	MaxShown   = 256       // identities of an answer
)

// The numbers of messages.
const (
	msgFailure          = 5
	msgSuccess          = 6
	msgIdentities       = 11
	msgIdentitiesAnswer = 12
	msgSign             = 13
	msgSignResponse     = 14
	msgExtension        = 27
)

// Fingerprint is what `ssh-add -l` calls a key: SHA256: and the unpadded base64 of its hash.
func Fingerprint(blob []byte) string {
	sum := sha256.Sum256(blob)
	return "SHA256:" + base64.RawStdEncoding.EncodeToString(sum[:])
}

// Failure is the answer to all that is refused.
func Failure() []byte { return []byte{msgFailure} }

var errForm = errors.New("malformed message of the agent protocol")

// reader takes the fields of a message; the first fault stays.
type reader struct {
	rest []byte
	bad  bool
}

func (r *reader) take(n uint64) []byte {
	if r.bad || n > uint64(len(r.rest)) {
		r.bad = true
		return nil
	}
	out := r.rest[:n:n]
	r.rest = r.rest[n:]
	return out
}

func (r *reader) byte() byte {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) uint32() uint32 {
	if b := r.take(4); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

func (r *reader) string() []byte { return r.take(uint64(r.uint32())) }

// bool is strict: what is neither no nor yes is a fault.
func (r *reader) bool() bool {
	b := r.byte()
	r.bad = r.bad || b > 1
	return b == 1
}

// done tells whether all was read and nothing is left.
func (r *reader) done() bool { return !r.bad && len(r.rest) == 0 }

func appendString(b, s []byte) []byte {
	return append(binary.BigEndian.AppendUint32(b, uint32(len(s))), s...)
}
