package box

import (
	"encoding/binary"
	"errors"
	"testing"

	"skep.dev/skep/internal/box/pause"
	"skep.dev/skep/internal/sys"
)

// A warden answers nothing after its last word, and is there for some time yet: nobody
// waits for its end.
func TestLastWordIsEnough(t *testing.T) {
	ours, theirs, err := sys.SeqpacketPair()
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	defer theirs.Close()
	k := newKernel(ours)
	ran := make(chan error, 1)
	go func() { ran <- k.run(pause.New()) }()
	type count struct {
		n   uint64
		err error
	}
	before := make(chan count, 1)
	go func() { // asked before the word, answered by it
		n, err := k.refused(t.Context())
		before <- count{n, err}
	}()
	buf := make([]byte, requestSize)
	if _, _, err := sys.RecvFDs(theirs, buf, 0); err != nil {
		t.Fatal(err)
	}
	last := make([]byte, answerSize)
	binary.LittleEndian.PutUint32(last, opCounter)
	binary.LittleEndian.PutUint64(last[16:], 42)
	if err := sys.SendFDs(theirs, last); err != nil {
		t.Fatal(err)
	}
	if got := <-before; got.n != 42 || got.err != nil {
		t.Errorf("asked before: %v", got)
	}
	if n, err := k.refused(t.Context()); n != 42 || err != nil {
		t.Errorf("asked after: %d, %v", n, err)
	}
	if err := k.ready(t.Context()); !errors.Is(err, ErrWardenGone) {
		t.Errorf("a warden whose cell has ended starts the agent: %v", err)
	}
	_ = theirs.Close()
	if err := <-ran; !errors.Is(err, ErrWardenGone) {
		t.Errorf("the end: %v", err)
	}
}
