package upgrade

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"connectrpc.com/connect"

	skepv1 "skep.dev/skep/api/skep/v1"
)

// One part is replaced at a time, by a caller that may leave; the zero part is nothing.
func TestOneUpgradeAtATime(t *testing.T) {
	begun, go_ := make(chan struct{}), make(chan struct{})
	p := &Programs{
		Worker: func(ctx context.Context) (string, error) {
			close(begun)
			<-go_
			return "b", ctx.Err()
		},
		Skepd: func(context.Context) error { return errors.New("it stays") },
		Boxes: func(context.Context) ([]string, error) { return []string{"c"}, nil },
		Log:   slog.New(slog.DiscardHandler),
	}
	call := func(ctx context.Context, part skepv1.UpgradePart) (*skepv1.UpgradeResponse, connect.Code) {
		r, err := p.Upgrade(ctx, connect.NewRequest(&skepv1.UpgradeRequest{Part: part}))
		if err != nil {
			return nil, connect.CodeOf(err)
		}
		return r.Msg, 0
	}
	ctx, leave := context.WithCancel(t.Context())
	built := make(chan string, 1)
	go func() {
		r, _ := call(ctx, skepv1.UpgradePart_UPGRADE_PART_WORKER)
		built <- r.GetBuild()
	}()
	<-begun
	if _, code := call(t.Context(), skepv1.UpgradePart_UPGRADE_PART_BOXES); code != connect.CodeFailedPrecondition {
		t.Errorf("beside another: %v", code)
	}
	leave()
	close(go_)
	if b := <-built; b != "b" {
		t.Errorf("built %q", b)
	}
	if r, code := call(t.Context(), skepv1.UpgradePart_UPGRADE_PART_BOXES); code != 0 || len(r.Cells) != 1 {
		t.Errorf("boxes: %v, %v", r, code)
	}
	for part, want := range map[skepv1.UpgradePart]connect.Code{
		skepv1.UpgradePart_UPGRADE_PART_SKEPD: connect.CodeFailedPrecondition, 0: connect.CodeInvalidArgument, 77: connect.CodeInvalidArgument,
	} {
		if _, code := call(t.Context(), part); code != want {
			t.Errorf("part %d: %v, want %v", part, code, want)
		}
	}
}
