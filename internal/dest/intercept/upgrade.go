package intercept

import (
	"errors"
	"io"

	"skep.dev/skep/internal/dest/intercept/ws"
	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/secret"
)

// filter is one direction of what is spoken instead of HTTP.
type filter interface {
	// Feed returns what may go on of all that it was fed.
	Feed(b []byte) ([]byte, error)
}

// leave carries what both have agreed to speak from now on, both ways, until each has
// ended. Of what is no WebSocket the text is looked at as it is.
func (f *carried) leave(protocol string, at secret.At) (flow.Reason, error) {
	var up, down filter = opaque{f.Keeper.Stray(at)}, nil
	if protocol == "websocket" {
		agent := (&ws.Agent{Keeper: f.Keeper, At: at, Now: f.Now, Room: &f.held, Record: f.used}).Begin()
		server := ws.NewServer(f.Keeper, at.Host, at.Port)
		defer agent.Close()
		defer server.Close()
		up, down = agent, server
	}
	back := make(chan error, 1)
	go func() {
		if down == nil {
			back <- (&answer{f: f}).watched(f.answers, pieces{to: f.agent})
		} else {
			back <- pump(f.agent, f.answers, down)
		}
		f.rawAgent.stop()
	}()
	err := pump(f.server, f.in, up)
	var misuse *ws.Misuse
	broken := errors.As(err, &misuse) || errors.Is(err, ws.ErrFrame)
	if broken {
		f.cut()
	} else {
		_ = f.server.CloseWrite()
	}
	other := <-back
	switch {
	case misuse != nil:
		for _, use := range misuse.Uses {
			_ = f.Record(f.ctx, f.permit.Request().ID, at.Host, use, misuse.Reason) // ended either way
		}
		return misuse.Reason, errRefused
	case errors.Is(other, secret.ErrReflected):
		f.cut()
		return flow.SecretReflected, other
	case broken:
		return flow.None, err
	}
	return flow.None, other
}

// used records one use, before it is sent.
func (f *carried) used(use secret.Use) error {
	q := f.permit.Request()
	return f.Record(f.ctx, q.ID, q.Name, use, flow.None)
}

// pump passes each piece on when it comes. What it has written it overwrites.
func pump(to io.Writer, from io.Reader, through filter) error {
	buf := make([]byte, 16<<10)
	for {
		n, err := from.Read(buf)
		text, fault := through.Feed(buf[:n])
		if fault != nil {
			return fault
		}
		if len(text) > 0 {
			_, fault = to.Write(text)
			clear(text)
		}
		switch {
		case fault != nil:
			return fault
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		}
	}
}

// opaque is text of no known form from an agent.
type opaque struct{ stray *secret.Stray }

func (o opaque) Feed(b []byte) ([]byte, error) {
	if why, use := o.stray.Feed(b); why != flow.None {
		return nil, &ws.Misuse{Reason: why, Uses: []secret.Use{use}}
	}
	return b, nil
}

var _ ws.Room = (*room)(nil)
