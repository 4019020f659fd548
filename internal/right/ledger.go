package right

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Ledger is what a cell may do with the record: a set. The zero set allows
// nothing.
type Ledger uint8

// The members of a Ledger.
const (
	ReadOwn Ledger = 1 << iota
	ReadDescendants
	AppendNote
	Export
)

func ledgerWords() []string { return []string{"read-own", "read-descendants", "append-note", "export"} }

// Covers: a subset.
func (l Ledger) Covers(child Ledger) bool { return child&^l == 0 }

func (l Ledger) words() []string {
	out := []string{}
	for i, word := range ledgerWords() {
		if l&(1<<i) != 0 {
			out = append(out, word)
		}
	}
	return out
}

// String is the canonical text: "read-own,append-note".
func (l Ledger) String() string { return strings.Join(l.words(), ",") }

func newLedger(words []string) (Ledger, error) {
	var l Ledger
	for _, w := range words {
		bit := Ledger(0)
		for i, known := range ledgerWords() {
			if w == known {
				bit = 1 << i
			}
		}
		if bit == 0 {
			return 0, fmt.Errorf("%q is not one of %s", w, strings.Join(ledgerWords(), ", "))
		}
		l |= bit
	}
	return l, nil
}

// ParseLedger takes what String gives.
func ParseLedger(text string) (Ledger, error) {
	var words []string
	if text != "" {
		words = strings.Split(text, ",")
	}
	l, err := newLedger(words)
	return roundTrip("ledger", text, l, err)
}

// MarshalJSON is a list of words.
func (l Ledger) MarshalJSON() ([]byte, error) { return json.Marshal(l.words()) }

// UnmarshalJSON takes what MarshalJSON gives.
func (l *Ledger) UnmarshalJSON(data []byte) error {
	var words []string
	if err := strictJSON(data, &words); err != nil {
		return fmt.Errorf("ledger right: %w", err)
	}
	v, err := newLedger(words)
	if err == nil {
		*l = v
	}
	return err
}
