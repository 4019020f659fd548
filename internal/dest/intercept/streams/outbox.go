package streams

import (
	"io"
	"slices"
	"sync"

	"skep.dev/skep/internal/h2/frame"
)

// outbox is what waits to be written to one peer. The connection's lock is held for all
// that is done with it but the writing.
type outbox struct {
	buf, spare []byte
	changed    *sync.Cond
	sealed     bool // nothing more is taken
	dead       bool // nothing is written any more
}

func newOutbox(lock *sync.Mutex) outbox { return outbox{changed: sync.NewCond(lock)} }

// put adds frames; they are written soon, in this order. Large ones have grown it before.
func (o *outbox) put(add func(b []byte) []byte) {
	if o.sealed || o.dead {
		return
	}
	o.grow(small)
	before := o.buf
	if o.buf = add(o.buf); len(before) > 0 && &before[0] != &o.buf[0] {
		clear(before)
	}
	o.changed.Broadcast()
}

// grow makes room for n bytes, and leaves no copy behind of what is there: it may have
// a value.
func (o *outbox) grow(n int) {
	if cap(o.buf)-len(o.buf) >= n {
		return
	}
	before := o.buf
	o.buf = slices.Grow(o.buf, n)
	clear(before)
}

// room waits until there is less than so much to be written.
func (o *outbox) room(most int) {
	for len(o.buf) >= most && !o.sealed {
		o.changed.Wait()
	}
}

// seal lets what is there be the last.
func (o *outbox) seal() {
	o.sealed = true
	o.changed.Broadcast()
}

// kill drops what is there.
func (o *outbox) kill() {
	o.sealed, o.dead = true, true
	clear(o.buf)
	o.buf = nil
	o.changed.Broadcast()
}

// write writes until the outbox is sealed and empty, or a write fails. more is called
// when something was written.
func (o *outbox) write(lock *sync.Mutex, to io.Writer, more func()) error {
	lock.Lock()
	defer lock.Unlock()
	for {
		for len(o.buf) == 0 && !o.sealed {
			o.changed.Wait()
		}
		if len(o.buf) == 0 {
			return nil
		}
		b := o.buf
		o.buf, o.spare = o.spare[:0], nil
		lock.Unlock()
		_, err := to.Write(b)
		clear(b)
		lock.Lock()
		if cap(b) <= 2*frame.MaxSize { // of a rare large one nothing is kept
			o.spare = b
		}
		if err != nil {
			o.kill()
			return err
		}
		o.changed.Broadcast()
		more()
	}
}
