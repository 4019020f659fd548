package reaching

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"connectrpc.com/connect"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/internal/forwarding"
	"skep.dev/skep/internal/handover"
)

type box struct {
	opening forwarding.Opening
	err     error
}

func (b *box) Forward(_ context.Context, channel *os.File) (err error) {
	if b.err != nil {
		return b.err
	}
	b.opening, err = forwarding.ReadOpening(channel)
	return err
}

func (b *box) Attach(*os.File) error { return nil }

type clock struct{}

func (clock) Now() time.Time { return time.Now() }
func (clock) AfterFunc(d time.Duration, f func()) func() {
	t := time.AfterFunc(d, f)
	return func() { t.Stop() }
}

// Nothing is opened that is not recorded first, that the cell cannot serve, or for nobody.
func TestForward(t *testing.T) {
	var noted []string
	b, desk := &box{}, handover.NewDesk(clock{})
	t.Cleanup(desk.Close)
	runs := true
	var unrecorded error
	f := &Reaching{
		Desk: desk, Find: func(ref string) (string, error) { return "cell-" + ref, nil },
		Cell: func(string) Cell {
			if runs {
				return b
			}
			return nil
		},
		Note: func(cell, text string) error { noted = append(noted, cell+": "+text); return unrecorded },
	}
	open := func(port uint32) (*connect.Response[skepv1.ForwardResponse], connect.Code) {
		r, err := f.Forward(t.Context(), connect.NewRequest(&skepv1.ForwardRequest{Cell: "a", Port: port}))
		return r, connect.CodeOf(err)
	}
	for _, port := range []uint32{0, 65001, 65053, 70000} {
		if _, code := open(port); code != connect.CodeInvalidArgument {
			t.Errorf("port %d: %s", port, code)
		}
	}
	r, _ := open(8080)
	if r == nil || r.Msg.Ticket == "" || b.opening.Port != 8080 || b.opening.Peer != "uid:0" || len(noted) != 1 || noted[0] != "cell-a: uid:0 reaches port 8080 of the cell from the host" {
		t.Errorf("%v, %+v, %q", r, b.opening, noted)
	}
	b.err = errors.New("full")
	if _, code := open(8080); code != connect.CodeUnavailable {
		t.Errorf("the box refuses: %s", code)
	}
	b.err, b.opening, unrecorded = nil, forwarding.Opening{}, errors.New("disk full")
	if _, code := open(8080); code != connect.CodeUnavailable || b.opening.Port != 0 {
		t.Errorf("not recorded: %s, %+v", code, b.opening)
	}
	runs = false
	if _, code := open(8080); code != connect.CodeFailedPrecondition {
		t.Errorf("a cell that does not run: %s", code)
	}
}
