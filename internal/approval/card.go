// Package approval is the machine for what a person decides while a cell runs
// (citizens.md, section 10; boundary.md, section 11).
//
// Its laws:
//   - A card is written in full before anybody is asked, and an answer before it has an
//     effect; what is here is what the entries say, live or read again (B142, C63).
//   - An answer names the hash of the card that was read. Its effect is taken from the
//     stored proposal, so that nothing else can be slipped in (C61).
//   - The first answer counts. The same again changes nothing, another is refused (C64).
//   - Time denies: a card that nobody answers expires (B140).
package approval

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"skep.dev/skep/internal/ledger/jcs"
)

// Bounds (B141, B143, C57).
const (
	OpenCards = 20               // of one cell; beyond them a question is a plain denial
	Patience  = time.Hour        // of a card
	OnceFor   = 10 * time.Minute // within which the next flow comes
	NoFor     = 10 * time.Minute // for which nobody is asked again
)

// Kind of a card. An unknown one can only be denied (C57).
const Egress = "egress"

// Proposal is what an egress card asks for: one destination.
type Proposal struct {
	Host      string `json:"host"` // normalised name or plain address
	Port      uint16 `json:"port"`
	Transport string `json:"transport"` // tcp, udp
	// Drafted says that the agent asked for it by itself, not by trying (B232).
	Drafted bool `json:"drafted,omitempty"`
}

// about reports whether two ask for the same.
func (p Proposal) about(other Proposal) bool {
	p.Drafted = other.Drafted
	return p == other
}

// Addr is the address that the proposal names; invalid where it names a host.
func (p Proposal) Addr() netip.Addr {
	a, err := netip.ParseAddr(p.Host)
	if err != nil {
		return netip.Addr{}
	}
	return a
}

// Visible is what a person sees of a card beside its id and times. All of it is made from
// the proposal and the policy; words of an agent are quoted in Quote (C60).
type Visible struct {
	Title    string   `json:"title"`
	Findings []string `json:"findings"`        // what it opens that is out of the ordinary (B145)
	Quote    string   `json:"quote,omitempty"` // why the agent wants it, in its words (B232)
}

// Scope is how far an answer reaches (B143).
type Scope string

// The scopes. A denial has none but Once.
const (
	Once   Scope = "once"
	Cell   Scope = "cell"
	Always Scope = "rule" // a rule of the owner's profile
)

// State of a card.
type State string

// The states of a card.
const (
	Pending   State = "pending"
	Approved  State = "approved"
	Denied    State = "denied"
	Expired   State = "expired"
	Withdrawn State = "withdrawn" // its cell ended
)

// Card is one question. ID, Cell, Owner, the proposal and what is visible never change.
type Card struct {
	ID       string
	Kind     string
	Cell     string
	Owner    uint32 // who started the cell, and decides
	Visible  Visible
	Proposal Proposal
	Opened   time.Time
	Expires  time.Time
	Hash     string // SHA-256 in hexadecimal, over all of the above but the times

	Count   uint64 // attempts that asked for it
	State   State
	Scope   Scope // of an approved one
	Decided time.Time
	Used    bool // of one that was approved once: a flow has taken it
}

// RulePrefix begins the id of the rule that an answer is in a verdict and in the record.
const RulePrefix = "approval-"

// Rule is what the card's answer is called as a rule.
func (c *Card) Rule() string { return RulePrefix + c.ID }

// bound is what the hash covers (C59).
type bound struct {
	Version  int      `json:"version"`
	ID       string   `json:"id"`
	Kind     string   `json:"kind"`
	Cell     string   `json:"cell"`
	Visible  Visible  `json:"visible"`
	Proposal Proposal `json:"proposal"`
}

const hashDomain = "skep-approval-v1\x00"

// text is the canonical form of what a card is bound to (RFC 8785), and its hash.
func (c *Card) text() (text []byte, hash string, err error) {
	text, err = jcs.Append(nil, bound{1, c.ID, c.Kind, c.Cell, c.Visible, c.Proposal})
	if err != nil {
		return nil, "", fmt.Errorf("write approval card %s: %w", c.ID, err)
	}
	sum := sha256.Sum256(append([]byte(hashDomain), text...))
	return text, hex.EncodeToString(sum[:]), nil
}

// Errors of a decision.
var (
	ErrNone    = errors.New("no such card")
	ErrHash    = errors.New("this is not the hash of the card: show it again, and give the hash that stands below it")
	ErrDecided = errors.New("it is decided already")
	ErrOver    = errors.New("its time is over")
)
