package splicer

import (
	"sync"

	"skep.dev/skep/internal/sys"
)

const (
	smallSize = 16 << 10 // what is copied; more than that at once is spliced
	pipeSize  = 1 << 20
	share     = 4 << 20 // bytes that one direction moves before it waits for the others
	sparePipe = 4       // empty pipes that are kept

	quietTurns = 2 // milliseconds without an event, before the thread sleeps
)

// Loop relays any number of flows. Its zero value is ready; its thread starts with
// the first flow and stays.
type Loop struct {
	mu     sync.Mutex
	err    error
	poller *sys.Poller
	next   uint64
	ends   map[uint64]*end
	behind []*direction // had their share
	small  []byte
	pipes  []pipe
}

// pipe is a kernel buffer; it is empty whenever it is kept for another flow.
type pipe struct{ r, w int }

// start makes the set and the thread, once. mu is held.
func (l *Loop) start() error {
	if l.poller != nil || l.err != nil {
		return l.err
	}
	l.poller, l.err = sys.NewPoller()
	if l.err != nil {
		return l.err
	}
	l.ends, l.small = map[uint64]*end{}, make([]byte, smallSize)
	go l.run()
	return nil
}

func (l *Loop) run() {
	var events []sys.Event
	for quiet := 0; ; {
		// Between a request and its answer there is little time, and to block as Go
		// does costs more than to relay. After a quiet moment it is done all the same.
		wait := l.poller.Soon
		if quiet >= quietTurns {
			wait = l.poller.Wait
		}
		var err error
		if events, err = wait(events[:0]); err != nil {
			l.fail(err)
			return
		}
		quiet++
		if len(events) == 0 {
			continue
		}
		quiet = 0
		l.mu.Lock()
		l.happened(events)
		l.catchUp()
		l.mu.Unlock()
	}
}

func (l *Loop) happened(events []sys.Event) {
	for _, e := range events {
		if end := l.ends[e.ID]; end != nil { // else it ended meanwhile
			end.happened(e)
		}
	}
}

// catchUp gives those that had their share the next, in turn with the events that
// came meanwhile. mu is held, and released between turns.
func (l *Loop) catchUp() {
	for len(l.behind) > 0 {
		turn := l.behind
		l.behind = nil
		for _, d := range turn {
			d.behind = false
			d.move()
		}
		if len(l.behind) == 0 {
			return
		}
		events, err := l.poller.Now(nil)
		if err != nil {
			return // the next Wait says it again
		}
		l.happened(events)
		l.mu.Unlock() // others begin and end flows
		l.mu.Lock()
	}
}

// fail ends all flows: without the set nothing moves.
func (l *Loop) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err = err
	for _, e := range l.ends {
		e.flow.fail(err)
	}
}

// pipe takes an empty pipe. mu is held, as in keep.
func (l *Loop) pipe() (pipe, error) {
	if n := len(l.pipes); n > 0 {
		p := l.pipes[n-1]
		l.pipes = l.pipes[:n-1]
		return p, nil
	}
	r, w, err := sys.SplicePipe(pipeSize)
	return pipe{r, w}, err
}

func (l *Loop) keep(p pipe, empty bool) {
	if empty && len(l.pipes) < sparePipe {
		l.pipes = append(l.pipes, p)
		return
	}
	sys.CloseFD(p.r, false)
	sys.CloseFD(p.w, false)
}
