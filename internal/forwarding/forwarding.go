// Package forwarding is what the box of a cell and its owner say to each other while he
// reaches its agent from the host (boundary.md, B178): over a seqpacket socket, one end of
// which skepd gives to the box and the other to the owner's program.
//
//	skepd                       box
//	Opening                ->        the port and who it is; before anybody else has an end
//	owner's program
//	id + 1 connection      ->
//	                       <-   Event: what became of one of them
//	                       <-   Event Moved with id 0: another box serves the cell, ask skepd again;
//	                            with another: that connection was not taken, give it to that box
//
// Its laws:
//   - The port is fixed by the first message, which is skepd's; nothing that follows
//     selects one (B172).
//   - What is longer or shorter than a message of these is none, and the end.
package forwarding

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"

	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/sys"
)

const (
	maxPeer   = 64 // bytes
	eventSize = 1 + 4
	maxReason = 32

	first = time.Second // for the Opening, which is there already
)

var errNonsense = errors.New("what came over the channel of a forward is no message of it")

// Opening is the first message.
type Opening struct {
	Port uint16
	Peer string // for the record
}

// Send leaves the opening in the channel.
func (o Opening) Send(channel *os.File) error {
	if o.Port == 0 || len(o.Peer) > maxPeer {
		return errNonsense
	}
	return sys.SendFDs(channel, append(binary.BigEndian.AppendUint16(nil, o.Port), o.Peer...))
}

// ReadOpening takes it out.
func ReadOpening(channel *os.File) (Opening, error) {
	if err := channel.SetReadDeadline(time.Now().Add(first)); err != nil {
		return Opening{}, fmt.Errorf("read what is to be forwarded: %w", err)
	}
	buf := make([]byte, 2+maxPeer)
	n, _, err := sys.RecvFDs(channel, buf, 0)
	if err == nil {
		err = channel.SetReadDeadline(time.Time{})
	}
	switch {
	case err != nil:
		return Opening{}, fmt.Errorf("read what is to be forwarded: %w", err)
	case n < 2 || binary.BigEndian.Uint16(buf) == 0:
		return Opening{}, errNonsense
	}
	return Opening{Port: binary.BigEndian.Uint16(buf), Peer: string(buf[2:n])}, nil
}

// Deliver hands one connection over, which stays the caller's to close.
func Deliver(channel *os.File, id uint32, connection *os.File) error {
	return sys.SendFDs(channel, binary.BigEndian.AppendUint32(nil, id), connection)
}

// Next waits for one; nil without an error is the end.
func Next(channel *os.File) (id uint32, connection *os.File, err error) {
	var buf [4]byte
	n, files, err := sys.RecvFDs(channel, buf[:], 1)
	switch {
	case err != nil, n == 0:
		return 0, nil, err
	case n != len(buf) || len(files) != 1:
		sys.CloseAll(files)
		return 0, nil, errNonsense
	}
	return binary.BigEndian.Uint32(buf[:]), files[0], nil
}

// What is the kind of an event.
type What byte

// The events of one connection, and the one of the channel.
const (
	Opened  What = 'o'
	Refused What = 'r'
	Ended   What = 'e'
	Moved   What = 'm'
)

// Event is what became of a connection.
type Event struct {
	What   What
	ID     uint32
	Reason flow.Reason // of Refused
}

// Send tells it. It waits no longer than the channel's write deadline.
func (e Event) Send(channel *os.File) error {
	m := binary.BigEndian.AppendUint32([]byte{byte(e.What)}, e.ID)
	return sys.SendFDs(channel, append(m, e.Reason.Token()...))
}

// ReadEvent waits for one; a zero event without an error is the end.
func ReadEvent(channel *os.File) (Event, error) {
	buf := make([]byte, eventSize+maxReason)
	n, files, err := sys.RecvFDs(channel, buf, 0)
	sys.CloseAll(files)
	switch {
	case err != nil, n == 0:
		return Event{}, err
	case n < eventSize:
		return Event{}, errNonsense
	}
	e := Event{What: What(buf[0]), ID: binary.BigEndian.Uint32(buf[1:])}
	switch e.What {
	case Opened, Ended, Moved:
		if n > eventSize {
			return Event{}, errNonsense
		}
	case Refused:
		if e.Reason, err = flow.ParseReason(string(buf[eventSize:n])); err != nil {
			return Event{}, errNonsense
		}
	default:
		return Event{}, errNonsense
	}
	return e, nil
}
