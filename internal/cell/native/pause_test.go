package native_test

import (
	"context"
	"testing"
	"time"

	"skep.dev/skep/internal/cell"
	"skep.dev/skep/internal/cell/celltest"
)

// A paused driver and cell say and hear nothing, and lose nothing.
func TestPauseLosesNothing(t *testing.T) {
	d := celltest.Driver(t)
	c := celltest.New(t, "/bin/bash", "-c", "read -t 60; exit 7")
	r := c.Start(d)
	ctx := context.Background()
	for range 3 {
		for _, p := range []cell.Pauser{r.(cell.Pauser), d.(cell.Pauser)} {
			if err := p.Pause(ctx); err != nil {
				t.Fatal(err)
			}
		}
		if err := d.(cell.Pauser).Pause(ctx); err == nil {
			t.Error("it was paused twice")
		}
		brief, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
		if _, err := d.Features(brief); err == nil {
			t.Error("a paused driver answered")
		}
		cancel()
		answer := make(chan error, 1)
		go func() {
			_, err := d.Features(ctx)
			answer <- err
		}()
		d.(cell.Pauser).Resume()
		if err := <-answer; err != nil {
			t.Errorf("a call that had to wait: %v", err)
		}
		r.(cell.Pauser).Resume()
	}
	if err := r.(cell.Pauser).Pause(ctx); err != nil {
		t.Fatal(err)
	}
	send(t, c, 0, []byte("\n"))
	c.Output() // the cell has ended, and its warden has said so
	select {
	case <-r.Done():
		t.Error("the end was heard by a paused cell")
	default:
	}
	r.(cell.Pauser).Resume()
	<-r.Done()
	if got := r.Result(); got.ExitCode != 7 || got.Left != nil {
		t.Errorf("the cell ended with %+v", got)
	}
	if err := r.(cell.Pauser).Pause(ctx); err == nil {
		t.Error("a cell that has ended was paused")
	}
}
