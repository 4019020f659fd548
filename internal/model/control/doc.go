// Package control is the conversation of skepd and skep-model on the one socket
// pair between them (unix SOCK_SEQPACKET, descriptor 3 of skep-model).
//
//	skepd                                   skep-model
//	config {targets, roles} + descriptors ->
//	                                      <- done {id, error}
//	cell {id, roles, amounts} + 1 stream  ->            once for each cell
//	                                      <- done
//	                                      <- record {id, cell, kind, body}
//	recorded {id, error}                  ->            only now is a provider called
//	end {cell}                            ->            its calls are broken off
//	                                      <- record ... the last settlements
//	                                      <- done
//
// Its laws:
//   - Keys and scripts cross as descriptors, never as values or paths.
//   - skep-model can write only the kinds model.admitted and model.settled, and
//     only for cells that it was given and that have not ended.
//   - An unknown field, operation or version ends the conversation, and with it
//     every call: neither side guesses.
package control

import (
	"encoding/json/jsontext"
	"encoding/json/v2"
	"errors"
	"fmt"
	"os"
	"sync"

	"skep.dev/skep/internal/sys"
)

// Version is that of this conversation. Both ends come from one build.
const Version = 1

// maxMessage bounds a message in bytes.
const maxMessage = 64 << 10

// Operations of messages.
const (
	opConfig   = "config"
	opCell     = "cell"
	opEnd      = "end"
	opDone     = "done"
	opRecord   = "record"
	opRecorded = "recorded"
)

// message is the one shape of all messages; Op says which fields count.
type message struct {
	V     int            `json:"v"`
	Op    string         `json:"op"`
	ID    uint64         `json:"id"` // chosen by the one who asks
	Error string         `json:"error,omitzero"`
	Setup *Config        `json:"config,omitzero"`
	Cell  *Cell          `json:"cell,omitzero"`
	Whose string         `json:"whose,omitzero"` // a cell's id: end, record
	Kind  string         `json:"kind,omitzero"`  // record
	Body  jsontext.Value `json:"body,omitzero"`  // record
}

// Config is what skep-model is to know. It replaces what it knew.
type Config struct {
	Targets map[string]Target   `json:"targets"`
	Roles   map[string][]string `json:"roles"` // names of targets, in order
}

// Target is one target. File is its script or its key, read from where it stands:
// open it anew for each Config. It stays the caller's.
type Target struct {
	Script bool   `json:"script,omitzero"` // else OpenAI
	OpenAI string `json:"openai,omitzero"` // base URL
	// Model is the provider's name of the model; the role's if "".
	Model        string `json:"model,omitzero"`
	LimitField   string `json:"limit_field,omitzero"`    // max_tokens if ""
	NoUsageChunk bool   `json:"no_usage_chunk,omitzero"` // refuses stream_options
	MaxOutput    int64  `json:"max_output,omitzero"`     // tokens, where a call names none
	IdleMillis   int64  `json:"idle_ms,omitzero"`
	Price        *Price `json:"price,omitzero"` // nil: not known

	File *os.File `json:"-"`
	Slot int      `json:"file,omitzero"` // its place among the descriptors, from 1
}

// Price is in micro-dollars for a million tokens. Cached input costs what input
// does, and reasoning what output does, unless said otherwise.
type Price struct {
	Version   string `json:"version,omitzero"`
	Input     int64  `json:"input"`
	Output    int64  `json:"output"`
	Cached    *int64 `json:"cached,omitzero"`
	Reasoning *int64 `json:"reasoning,omitzero"`
}

// Cell is a cell's right to models. Amounts are what it may use from now on;
// budget.Unlimited for no limit, zero for none at all.
type Cell struct {
	ID       string   `json:"id"`
	Agent    string   `json:"agent,omitzero"`
	Roles    []string `json:"roles"`
	Tokens   int64    `json:"tokens"`
	MicroUSD int64    `json:"usd_micro"`
}

// Errors of a conversation that ended.
var (
	ErrEnded    = errors.New("the other end is gone")
	errProtocol = errors.New("the other end broke the protocol")
)

// send sends one message; a seqpacket message goes whole or not at all, so that
// senders need no lock.
func send(sock *os.File, m message, files ...*os.File) error {
	m.V = Version
	b, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("print %s message: %w", m.Op, err)
	}
	if len(b) > maxMessage {
		return fmt.Errorf("%s message of %d bytes is longer than %d", m.Op, len(b), maxMessage)
	}
	return sys.SendFDs(sock, b, files...)
}

// receive takes one message; ErrEnded where there will be no more.
func receive(sock *os.File) (message, []*os.File, error) {
	buf := make([]byte, maxMessage)
	n, files, err := sys.RecvFDs(sock, buf, sys.MaxPassedFDs)
	if err != nil {
		return message{}, nil, fmt.Errorf("receive from control socket: %w", err)
	}
	if n == 0 {
		sys.CloseAll(files)
		return message{}, nil, ErrEnded
	}
	var m message
	if err := json.Unmarshal(buf[:n], &m, json.RejectUnknownMembers(true)); err != nil || m.V != Version {
		sys.CloseAll(files)
		return message{}, nil, fmt.Errorf("read control message: %w", errProtocol)
	}
	return m, files, nil
}

// questions are those that wait for an answer by their id.
type questions struct {
	mu      sync.Mutex
	last    uint64
	waiting map[uint64]chan string // gets the answer's error text
	over    error                  // set once: no answer will come
	quiet   chan struct{}          // not nil while somebody waits until nothing is asked
}

// settled is closed when every question has its answer.
func (q *questions) settled() <-chan struct{} {
	q.mu.Lock()
	defer q.mu.Unlock()
	quiet := make(chan struct{})
	q.quiet = quiet
	q.settle()
	return quiet
}

// settle tells who waits that nothing is asked. The caller has the lock.
func (q *questions) settle() {
	if q.quiet != nil && len(q.waiting) == 0 {
		close(q.quiet)
		q.quiet = nil
	}
}

// ask makes an id and a channel for its answer; the channel is closed without one
// when the conversation ends.
func (q *questions) ask() (uint64, <-chan string, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.over != nil {
		return 0, nil, q.over
	}
	if q.waiting == nil {
		q.waiting = map[uint64]chan string{}
	}
	q.last++
	c := make(chan string, 1)
	q.waiting[q.last] = c
	return q.last, c, nil
}

// answer hands an answer over; one that nobody asked for breaks the protocol.
func (q *questions) answer(id uint64, text string) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	c := q.waiting[id]
	if c == nil {
		return fmt.Errorf("answer %d: %w", id, errProtocol)
	}
	delete(q.waiting, id)
	c <- text
	q.settle()
	return nil
}

// end lets all who wait know that no answer will come.
func (q *questions) end(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.over = err
	for id, c := range q.waiting {
		delete(q.waiting, id)
		close(c)
	}
	q.settle()
}
