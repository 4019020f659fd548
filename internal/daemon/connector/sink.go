package connector

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"skep.dev/skep/internal/boundary/link"
)

// Sink is where records go. It may be used by several at once; what it has taken is durable.
type Sink interface {
	append(who identity, records []link.Record) error
	event(who identity, e event) error
}

// File has one line of JSON for each record.
type File struct {
	mu   sync.Mutex
	out  io.Writer
	sync func() error
}

// OpenSink appends to a file with mode 0600, and makes each batch durable; "-" is the
// standard output, where a record is as durable as what reads it.
func OpenSink(path string) (*File, error) {
	if path == "-" {
		return &File{out: os.Stdout, sync: func() error { return nil }}, nil
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the records: %w", err)
	}
	return &File{out: f, sync: f.Sync}, nil
}

// identity is what the connector says about a record (B191, B213).
type identity struct {
	Listener   string  `json:"listener"`
	Sandbox    string  `json:"sandbox"`
	Generation uint64  `json:"generation"`
	Slice      *uint32 `json:"pool_slice,omitempty"`
	Agent      string  `json:"agent,omitempty"`
	ExternalID string  `json:"external_id,omitempty"`
	Meta       meta    `json:"meta"`
}

// meta holds what a reader need not know to read the rest.
type meta struct {
	Identity string `json:"identity"` // verified, unverified or none
}

// line is one record as it is written.
type line struct {
	identity
	link.Record
}

// event is something that the connector itself did.
type event struct {
	identity
	Kind   string    `json:"kind"` // attached, swapped, refreshed, detached or died
	Time   time.Time `json:"ts"`
	Policy string    `json:"policy,omitempty"` // that is installed now
	Why    string    `json:"why,omitempty"`
	rules  []string  // of an agent that is attached
}

// append writes records and makes them durable.
func (s *File) append(who identity, records []link.Record) error {
	var text []byte
	for _, r := range records {
		one, err := json.Marshal(line{who, r})
		if err != nil {
			return fmt.Errorf("write a record: %w", err)
		}
		text = append(append(text, one...), '\n')
	}
	return s.write(text)
}

func (s *File) event(who identity, e event) error {
	e.identity, e.Time = who, time.Now().UTC()
	one, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("write an event: %w", err)
	}
	return s.write(append(one, '\n'))
}

// write writes whole lines. After a write that failed in the middle of one, the next
// begins on a line of its own.
func (s *File) write(text []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, err := s.out.Write(text)
	if err != nil && n > 0 {
		_, again := s.out.Write([]byte("\n"))
		err = errors.Join(err, again)
	}
	if err == nil {
		err = s.sync()
	}
	if err != nil {
		return fmt.Errorf("append to the records: %w", err)
	}
	return nil
}
