package sshagent

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
)

// Page is what a profile's agent_socket grants.
type Page struct {
	Keys  []string  `json:"keys"`  // fingerprints; none: every key of the agent
	Bound bool      `json:"bound"` // only for Hosts
	Hosts []HostKey `json:"hosts"`
}

// HostKey is one key that a host is known by.
type HostKey struct {
	Host string `json:"host"` // as the page has it
	Blob []byte `json:"blob"` // the public key in wire form
}

// Grants tells whether the page lets a key be used.
func (p *Page) Grants(fingerprint string) bool {
	return len(p.Keys) == 0 || slices.Contains(p.Keys, fingerprint)
}

// Verdict is what becomes of one message: exactly one of Answer, List and Sign is set.
type Verdict struct {
	Answer []byte // ours; nothing goes on
	List   bool   // ask for the identities, and answer with Shown of what comes
	Sign   []byte // what goes on

	Key    string // of a signature: the fingerprint
	Host   string // whom it is for, as far as that is proved
	Did    string // what was asked for, of what is refused and of a signature
	Reason string // why not; "" where nothing is refused
}

// Session is one connection of a cell.
type Session struct {
	Page   *Page
	binds  []bind
	spoilt bool // it was bound for another machine to use
}

// bind is a session that the connection speaks for.
type bind struct {
	id   []byte
	host string // "" for a key that no host of the page has
}

// Judge reads one message. It never keeps m.
func (s *Session) Judge(m []byte) Verdict {
	r := &reader{rest: m}
	switch kind := r.byte(); {
	case r.bad:
		return refuse("an empty message", "malformed")
	case kind == msgIdentities && r.done():
		return Verdict{List: true}
	case kind == msgSign:
		return s.sign(r)
	case kind == msgExtension:
		return s.extension(r)
	default:
		return refuse(named(kind), "operation-not-granted")
	}
}

func refuse(did, reason string) Verdict {
	return Verdict{Answer: Failure(), Did: did, Reason: reason}
}

// named is what a request is called that never goes on.
func named(kind byte) string {
	names := map[byte]string{
		1: "list the keys of version 1", 9: "remove all keys of version 1", msgIdentities: "list the keys", 17: "add a key", 18: "remove a key", 19: "remove all keys",
		20: "add a smartcard", 21: "remove a smartcard", 22: "lock the agent", 23: "unlock the agent",
		25: "add a key with constraints", 26: "add a smartcard with constraints",
	}
	if n := names[kind]; n != "" {
		return n
	}
	return "an unknown request"
}

func (s *Session) sign(r *reader) Verdict {
	key, data, flags := r.string(), r.string(), r.uint32()
	if !r.done() || len(key) == 0 {
		return refuse("sign", "malformed")
	}
	v := Verdict{Key: Fingerprint(key), Did: "sign"}
	deny := func(reason string) Verdict {
		v.Answer, v.Reason = Failure(), reason
		return v
	}
	if !s.Page.Grants(v.Key) {
		return deny("key-not-granted")
	}
	if flags&^6 != 0 { // rsa-sha2-256 and rsa-sha2-512
		return deny("malformed")
	}
	if s.Page.Bound {
		if v.Host = s.hostOf(key, data); v.Host == "" {
			return deny("host-not-granted")
		}
	}
	v.Sign = appendString(appendString([]byte{msgSign}, key), data)
	v.Sign = binary.BigEndian.AppendUint32(v.Sign, flags)
	return v
}

// hostOf is the host that data logs in at with the key, "" unless the page has it.
func (s *Session) hostOf(key, data []byte) string {
	const userAuth = 50
	r := &reader{rest: data}
	id, kind := r.string(), r.byte()
	r.string() // user
	service, method, signed := r.string(), string(r.string()), r.bool()
	r.string() // algorithm
	used := r.string()
	if method == "publickey-hostbound-v00@openssh.com" {
		r.string() // the host's key, which the session is bound to anyway
	} else if method != "publickey" {
		return ""
	}
	if !r.done() || kind != userAuth || !signed || string(service) != "ssh-connection" || !bytes.Equal(used, key) || s.spoilt {
		return ""
	}
	for _, b := range s.binds {
		if bytes.Equal(b.id, id) {
			return b.host
		}
	}
	return ""
}

// extension takes the binding of a connection to a session (OpenSSH's PROTOCOL.agent),
// for our own use; it does not go on, and no other extension does.
func (s *Session) extension(r *reader) Verdict {
	name := string(r.string())
	if name != "session-bind@openssh.com" {
		return refuse("an extension", "operation-not-granted")
	}
	host, id, signature, forwarded := r.string(), r.string(), r.string(), r.bool()
	switch {
	case !s.Page.Bound: // nobody asks; a client goes on without
		return Verdict{Answer: Failure()}
	case !r.done() || len(id) == 0 || len(id) > 128 || len(s.binds) >= MaxBinds:
		s.spoilt = true
		return refuse("bind to a session", "malformed")
	case verify(host, id, signature) != nil:
		s.spoilt = true
		return refuse("bind to a session", "signature-of-no-host")
	case forwarded:
		// What comes next is asked by the machine at the other end.
		s.spoilt = true
		return refuse("forward the agent", "operation-not-granted")
	}
	b := bind{id: bytes.Clone(id)}
	for _, h := range s.Page.Hosts {
		if bytes.Equal(h.Blob, host) {
			b.host = h.Host
			break
		}
	}
	for _, known := range s.binds {
		if bytes.Equal(known.id, b.id) && known.host != b.host {
			s.spoilt = true
			return refuse("bind to a session", "malformed")
		}
	}
	s.binds = append(s.binds, b)
	return Verdict{Answer: []byte{msgSuccess}}
}

// Shown is the agent's answer to a list, with the keys of the page and no other.
func (p *Page) Shown(answer []byte) ([]byte, error) {
	r := &reader{rest: answer}
	if kind := r.byte(); r.bad || kind != msgIdentitiesAnswer {
		return nil, fmt.Errorf("%w: no list of identities", errForm)
	}
	n, shown, list := r.uint32(), uint32(0), []byte(nil)
	for range n {
		key, comment := r.string(), r.string()
		if r.bad {
			break
		}
		if p.Grants(Fingerprint(key)) && shown < MaxShown {
			shown++
			list = appendString(appendString(list, key), comment)
		}
	}
	if !r.done() {
		return nil, errForm
	}
	return append(binary.BigEndian.AppendUint32([]byte{msgIdentitiesAnswer}, shown), list...), nil
}

// Signed is the agent's answer to a signature, or a failure.
func Signed(answer []byte) []byte {
	r := &reader{rest: answer}
	if r.byte() == msgSignResponse && len(r.string()) > 0 && r.done() {
		return answer
	}
	return Failure()
}
