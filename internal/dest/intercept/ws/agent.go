package ws

import (
	"crypto/rand"
	"fmt"
	"slices"
	"time"

	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/secret"
)

// Misuse is a message that must not go on. The direction has then ended.
type Misuse struct {
	Reason flow.Reason
	Uses   []secret.Use // to be recorded with the reason
}

func (m *Misuse) Error() string { return "WebSocket message: " + m.Reason.Token() }

// maxFed bounds what goes on at once: many small messages would be a large text of values.
const maxFed = 4 * secret.MaxText

// Room is what a cell has for messages that are read whole, in bytes.
type Room interface {
	Take(n int) bool
	Give(n int)
}

// Agent is the direction from an agent.
type Agent struct {
	Keeper *secret.Keeper
	At     secret.At // of the request that opened it
	Now    func() time.Time
	Record func(secret.Use) error // of a use; what it does not write is not sent
	Room   Room

	frames
	fill          bool // text messages are read whole
	data, control *secret.Stray
	message       []byte // text that has come so far of one that is filled in
	taken         bool   // there is room for it
	plain, out    []byte
}

// Begin makes a the beginning of a direction. Close ends it.
func (a *Agent) Begin() *Agent {
	a.masked = true
	a.fill = a.Keeper.InText(a.At)
	a.data, a.control = a.Keeper.Stray(a.At), a.Keeper.Stray(a.At)
	return a
}

// Close overwrites what is left of a message.
func (a *Agent) Close() {
	clear(a.message[:cap(a.message)])
	a.message = nil
	if a.taken {
		a.Room.Give(secret.MaxText)
		a.taken = false
	}
}

// Feed takes what the agent has sent and returns what may go on, good until the next
// call. The caller overwrites that once it is sent.
func (a *Agent) Feed(b []byte) ([]byte, error) {
	a.out = a.out[:0]
	for len(b) > 0 || a.inside && a.left == 0 {
		if !a.inside {
			rest, whole, err := a.next(b)
			if err != nil {
				return nil, err
			}
			b = rest
			if !whole {
				break
			}
			if err := a.opened(); err != nil {
				return nil, err
			}
		}
		piece := b[:min(uint64(len(b)), a.left)]
		b = b[len(piece):]
		if err := a.payload(piece); err != nil {
			return nil, err
		}
		if a.left == 0 {
			if err := a.closed(); err != nil {
				return nil, err
			}
		}
	}
	return a.out, nil
}

// filled tells whether the frame is of a message that is read whole.
func (a *Agent) filled() bool { return a.fill && !a.frame.control() && a.frames.message == opText }

// opened passes a head on, or makes room for a message.
func (a *Agent) opened() error {
	switch {
	case !a.filled():
		a.out = append(a.out, a.head[:a.have]...)
	case a.left > secret.MaxText || uint64(len(a.message))+a.left > secret.MaxText:
		return &Misuse{Reason: flow.SecretTooLarge}
	case !a.taken && !a.Room.Take(secret.MaxText):
		return &Misuse{Reason: flow.Busy}
	default:
		a.taken = true
	}
	return nil
}

func (a *Agent) payload(piece []byte) error {
	if a.filled() {
		a.message = a.unmask(slices.Grow(a.message, len(piece)), piece)
		a.left -= uint64(len(piece))
		return nil
	}
	a.plain = a.unmask(a.plain[:0], piece)
	a.left -= uint64(len(piece))
	stray := a.data
	if a.frame.control() {
		stray = a.control
	}
	if why, use := stray.Feed(a.plain); why != flow.None {
		return &Misuse{why, []secret.Use{use}}
	}
	a.out = append(a.out, piece...)
	return nil
}

// closed is called at the end of a frame; a text message that ends with it is filled in.
func (a *Agent) closed() error {
	last := a.filled() && a.final
	a.end()
	if !last {
		return nil
	}
	defer a.Close()
	text, uses, why := a.data.Text(a.Now(), a.message)
	if why != flow.None {
		return &Misuse{why, uses}
	}
	defer clear(text)
	if len(a.out)+len(text) > maxFed {
		return &Misuse{flow.SecretTooLarge, uses}
	}
	for _, use := range uses {
		if err := a.Record(use); err != nil {
			return fmt.Errorf("record a use in a message: %w", &Misuse{Reason: flow.RecordUnavailable})
		}
	}
	var mask [4]byte
	rand.Read(mask[:])
	a.out = appendText(slices.Grow(a.out, len(text)+longHead), text, mask)
	return nil
}
