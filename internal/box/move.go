package box

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"skep.dev/skep/internal/h2"
	"skep.dev/skep/internal/lifeline"
)

var (
	errUnknownOrder = errors.New("an order that this box does not know")
	errNoModel      = errors.New("the cell has no right to a model")
)

// obey carries out skepd's orders until the lifeline ends: a box without it has no
// skepd any more. flows is the life of what is forwarded.
func (b *box) obey(ctx, flows context.Context) error {
	for {
		order, file, err := lifeline.Next(b.lifeline)
		if err != nil {
			return fmt.Errorf("follow the lifeline: %w", err)
		}
		failed := b.carryOut(ctx, flows, order, file)
		if err := lifeline.Answer(b.lifeline, failed); err != nil {
			return fmt.Errorf("follow the lifeline: %w", err)
		}
		if order == lifeline.Part && failed == nil {
			close(b.told)
		}
	}
}

func (b *box) carryOut(ctx, flows context.Context, order lifeline.Order, file *os.File) error {
	switch order {
	case lifeline.Move:
		return b.link.move(ctx, file)
	case lifeline.Model:
		return b.models(ctx, file)
	case lifeline.HandOver:
		return b.handOver(ctx, file)
	case lifeline.Keep:
		return b.keep(ctx)
	case lifeline.Part:
		return b.part()
	case lifeline.Forward:
		return b.forwards.Begin(flows, file)
	case lifeline.Secrets:
		if b.secrets == nil {
			_ = file.Close()
			return errOtherSecrets
		}
		return b.secrets.Fill(file)
	}
	return errUnknownOrder
}

// models makes f the way to the model gateway, which it owns.
func (b *box) models(ctx context.Context, f *os.File) error {
	if b.model == nil {
		_ = f.Close()
		return errNoModel
	}
	gateway, err := over(f)
	if err != nil {
		return err
	}
	go b.model.Exchange(gateway)(ctx) // an answer may take as long as a model thinks
	return nil
}

// events asks for the stream of events; its first message is next's to wait for.
func events(ctx context.Context, daemon *h2.Conn) (*h2.Stream, error) {
	var m writer
	m.number(1, protocol)
	head := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(m)))
	s, err := daemon.Post(ctx, "skepd", service+"Watch", fields("application/connect+proto", 0), append(head, m...))
	if err != nil {
		return nil, fmt.Errorf("watch the daemon: %w", err)
	}
	return s, nil
}

// current is the newest stream of events.
func (l *link) current() *h2.Stream {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.events
}

// move makes f the way to skepd, which it owns. It returns when everything that was
// asked on the way before has its answer. Nobody need read f yet.
func (l *link) move(ctx context.Context, f *os.File) error {
	daemon, err := over(f)
	if err != nil {
		return err
	}
	events, err := events(ctx, daemon)
	if err != nil {
		_ = daemon.Close()
		return err
	}
	l.mu.Lock()
	l.events = events
	l.mu.Unlock()
	l.daemon.Exchange(daemon)(ctx)
	return nil
}
