package secret

import (
	"bytes"
	"encoding/json"
	"slices"
	"time"

	"skep.dev/skep/internal/flow"
)

// MaxText bounds a text message of a WebSocket in which values are filled in, in bytes,
// all its fragments together (B123).
const MaxText = 64 << 10

// InText tells whether text messages of a WebSocket that was opened there have to be read
// whole, because a binding has a place in them.
func (k *Keeper) InText(at At) bool {
	return slices.ContainsFunc(k.bound, func(b Bound) bool { return b.has(Place{Kind: WS}) && b.covers(at) })
}

// Text fills one message in and judges the rest of it, together with what was fed before.
// In a message that is JSON a value is written as JSON has it. With a reason nothing is
// sent on, and the uses are misuses.
func (s *Stray) Text(now time.Time, message []byte) ([]byte, []Use, flow.Reason) {
	if len(message) > MaxText {
		return nil, nil, flow.SecretTooLarge
	}
	s.keeper.mu.RLock()
	defer s.keeper.mu.RUnlock()
	f := s.keeper.filler(s.at, now)
	var form func([]byte) []byte
	if start := bytes.TrimLeft(message, " \t\r\n"); len(start) > 0 && bytes.IndexByte([]byte(`{["`), start[0]) >= 0 && json.Valid(message) {
		form = quote
	}
	text, rest := slices.Clone(message), slices.Clone(message)
	for i := range s.keeper.bound {
		before := text
		text, rest = f.put(&s.keeper.bound[i], Place{Kind: WS}, text, rest, form)
		if len(before) > 0 && len(text) > 0 && &before[0] != &text[0] {
			clear(before) // it may have a value by now
		}
	}
	return f.verdict(text, s.finder.Feed(rest))
}
