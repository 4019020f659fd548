package splicer

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"skep.dev/skep/internal/flow/limit"
)

// TestN06IdleBound: a flow in which something moves now and then lives for days, one in which
// nothing does for an hour ends: by a clock that does not wait (field report N06).
func TestN06IdleBound(t *testing.T) {
	l := &Loop{}
	newLab(t, l, time.Hour) // the loop's thread has the world's clock
	agent, near := pair(t)
	server, up := pair(t)
	defer func() { _, _ = agent.Close(), server.Close() }()
	synctest.Test(t, func(t *testing.T) {
		meter := &Meter{}
		f, err := l.New(near, up, meter, nil, limit.IdleTCP)
		if err != nil {
			t.Fatal(err)
		}
		f.BeginUp()
		f.BeginDown()
		ended := make(chan error, 1)
		go func() { ended <- f.Up() }()
		begin := time.Now()
		for time.Since(begin) < 48*time.Hour {
			<-time.After(limit.IdleTCP - time.Second)
			select {
			case err := <-ended:
				t.Fatalf("ended after %s: %v", time.Since(begin), err)
			default:
			}
			meter.Touch() // as each byte does
		}
		last := time.Now()
		if err := <-ended; !errors.Is(err, ErrIdle) {
			t.Error(err)
		}
		if quiet := time.Since(last); quiet < limit.IdleTCP || quiet > limit.IdleTCP+time.Minute {
			t.Errorf("ended after %s in silence", quiet)
		}
	})
}
