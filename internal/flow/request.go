package flow

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net/netip"
	"strconv"
)

// ID names one attempt or one accepted connection: 128 random bits.
type ID [16]byte

// NewID draws a fresh ID. The reader of crypto/rand cannot fail.
func NewID() ID {
	var id ID
	rand.Read(id[:])
	return id
}

// String is 32 lower-case hexadecimal digits.
func (id ID) String() string { return hex.EncodeToString(id[:]) }

// Direction says who opened the flow. The zero Direction is not valid.
type Direction uint8

// Out leaves the cell, In arrives at it.
const (
	Out Direction = iota + 1
	In
)

// String is "out", "in" or empty.
func (d Direction) String() string { return pick([]string{"", "out", "in"}, int(d)) }

// Wire says in which form the attempt reached the box. The zero Wire is not valid.
type Wire uint8

// Native is the kernel's own TCP; H1 and H2 are tunnels.
const (
	Native Wire = iota + 1
	H1
	H2
)

// String is "native", "h1", "h2" or empty.
func (w Wire) String() string { return pick([]string{"", "native", "h1", "h2"}, int(w)) }

// Transport is what runs on top of IP. The zero Transport is not valid.
type Transport uint8

// TCP and UDP are carried. Other is what the kernel refused and counted only (B21).
const (
	TCP Transport = iota + 1
	UDP
	Other
)

// String is "tcp", "udp", "other" or empty.
func (t Transport) String() string { return pick([]string{"", "tcp", "udp", "other"}, int(t)) }

// Protocol says what the agent's first bytes were.
type Protocol uint8

// Unread is before the agent spoke; Opaque is neither TLS nor checked HTTP.
const (
	Unread Protocol = iota
	Opaque
	TLS
	HTTP
)

// String is empty while unread.
func (p Protocol) String() string { return pick([]string{"", "opaque", "tls", "http"}, int(p)) }

// Inner is what the agent's first bytes ask for, filled for a second decision
// on the same Request (B2, B110).
type Inner struct {
	Protocol Protocol
	Name     string // TLS server name or HTTP Host, normalised; empty if none was sent or it is no name
	ALPN     string // comma separated, TLS only
	ECH      bool   // TLS only: the server name is perhaps not the one that is meant (B114)
	Method   string // HTTP only
	Path     string // HTTP only, without the query
}

// Request is one attempt to reach one destination (B1, B2). Exactly one of Name and Addr is set.
type Request struct {
	ID, Conn   ID
	Cell       string
	Agent      string
	Generation uint64
	Peer       string
	Direction  Direction
	Wire       Wire
	Transport  Transport
	Port       uint16
	Name       string     // A-label form, lower case, no trailing dot
	Addr       netip.Addr // a literal, never IPv4-mapped
	Synthetic  netip.Addr // native only: the address by which Name was found
	Count      uint64     // how many identical attempts this stands for; at least 1
	Inner      Inner
}

// Check says why r cannot be decided: an unset field, or both or neither of
// Name and Addr. The zero Request always fails.
func (r Request) Check() error {
	switch {
	case r.Cell == "":
		return fmt.Errorf("flow request without a cell")
	case r.Direction != Out && r.Direction != In:
		return fmt.Errorf("flow request without a direction")
	case r.Wire == 0 || r.Wire > H2:
		return fmt.Errorf("flow request without a wire")
	case r.Transport != TCP && r.Transport != UDP:
		return fmt.Errorf("flow request without a transport")
	case r.Port == 0:
		return fmt.Errorf("flow request without a port")
	case (r.Name == "") == !r.Addr.IsValid():
		return fmt.Errorf("flow request needs exactly one of a name and an address")
	case r.Addr.Is4In6():
		return fmt.Errorf("flow request with an IPv4-mapped address")
	case r.Count == 0:
		return fmt.Errorf("flow request that counts nothing")
	}
	return nil
}

// Destination is "name:port", "1.2.3.4:port" or "[2001:db8::1]:port". A refusal
// that the kernel only counted has none: "*".
func (r Request) Destination() string {
	switch {
	case r.Name != "":
		return r.Name + ":" + strconv.Itoa(int(r.Port))
	case r.Addr.IsValid():
		return netip.AddrPortFrom(r.Addr, r.Port).String()
	}
	return "*"
}

func pick(words []string, i int) string {
	if i < len(words) {
		return words[i]
	}
	return ""
}
