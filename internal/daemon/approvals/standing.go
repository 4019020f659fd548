package approvals

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/internal/approval"
	"skep.dev/skep/internal/daemon/cells"
	"skep.dev/skep/internal/sys/durable"
)

// Said is one answer that holds for good.
type Said struct {
	Card     string            `json:"card"`
	Hash     string            `json:"hash"`
	Cell     string            `json:"cell"` // whose question it was
	UID      uint32            `json:"uid"`
	Profile  string            `json:"profile"` // its file
	Proposal approval.Proposal `json:"proposal"`
	Since    time.Time         `json:"since"`
}

// said is a card's answer for whoever started its cell, and that cell's profile.
func said(r cells.Record, c approval.Card) Said {
	return Said{Card: c.ID, Hash: c.Hash, Cell: c.Cell, UID: r.UID, Profile: r.ProfileName, Proposal: c.Proposal, Since: c.Decided}
}

// Standing is the file of what was said for good.
type Standing struct {
	path string

	mu   sync.Mutex
	said []Said // oldest first
}

// OpenStanding reads the file, which need not be there.
func OpenStanding(path string) (*Standing, error) {
	s := &Standing{path: path}
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err == nil {
		err = json.Unmarshal(raw, &s.said)
	}
	if err != nil {
		return nil, fmt.Errorf("read what was approved for good (remove the file to forget it all): %w", err)
	}
	return s, nil
}

// All is everything, newest first.
func (s *Standing) All() []Said {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := slices.Clone(s.said)
	slices.Reverse(out)
	return out
}

// Of is what one person has said about one profile, oldest first.
func (s *Standing) Of(uid uint32, profile string) []Said {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.said), func(x Said) bool { return x.UID != uid || x.Profile != profile })
}

// Find is the one with an id, or with the beginning of one.
func (s *Standing) Find(id string) (found Said, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range s.said {
		if x.Card == id {
			return x, true
		}
		if len(id) >= approval.MinPrefix && strings.HasPrefix(x.Card, id) {
			if ok {
				return Said{}, false
			}
			found, ok = x, true
		}
	}
	return found, ok
}

// Add keeps an answer; the same one again, or one about the same, changes nothing.
func (s *Standing) Add(x Said) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, have := range s.said {
		if have.Card == x.Card || have.UID == x.UID && have.Profile == x.Profile && have.Proposal == x.Proposal {
			return nil
		}
	}
	return s.write(append(slices.Clone(s.said), x))
}

// Remove takes one back.
func (s *Standing) Remove(card string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.write(slices.DeleteFunc(slices.Clone(s.said), func(x Said) bool { return x.Card == card }))
}

// write replaces the file; after an error the old one holds. mu is held.
func (s *Standing) write(said []Said) error {
	raw, err := json.MarshalIndent(said, "", "  ")
	if err != nil {
		return fmt.Errorf("print what was approved for good: %w", err)
	}
	if err := durable.ReplaceFile(s.path, append(raw, '\n'), 0o600); err != nil {
		return fmt.Errorf("keep what was approved for good: %w", err)
	}
	s.said = said
	return nil
}

func (x Said) message() *skepv1.StandingApproval {
	return &skepv1.StandingApproval{
		Id: x.Card, Profile: x.Profile, Host: x.Proposal.Host, Port: uint32(x.Proposal.Port), Transport: x.Proposal.Transport, Since: x.Since.UTC().Format(time.RFC3339),
	}
}

func message(c approval.Card) *skepv1.Card {
	out := &skepv1.Card{
		Id: c.ID, Kind: c.Kind, Cell: c.Cell, Title: c.Visible.Title, Findings: c.Visible.Findings, Quote: c.Visible.Quote,
		Host: c.Proposal.Host, Port: uint32(c.Proposal.Port), Transport: c.Proposal.Transport, Hash: c.Hash, Count: c.Count,
		State: string(c.State), Scope: string(c.Scope), Used: c.Used, Opened: c.Opened.Format(time.RFC3339), Expires: c.Expires.Format(time.RFC3339),
	}
	if !c.Decided.IsZero() {
		out.Decided = c.Decided.Format(time.RFC3339)
	}
	return out
}
