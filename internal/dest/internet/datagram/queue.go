package datagram

import (
	"sync"
	"sync/atomic"
)

// How many bytes wait for an agent that does not read: of one flow, and of all flows of
// a cell together (B150).
const (
	MaxQueue  = 1 << 20
	MaxQueued = 64 << 20
)

// perPayload is what a waiting payload takes beside its bytes, so that empty ones are
// bounded, too.
const perPayload = 64

// Room is what all queues of a cell share. Its zero value is ready.
type Room struct{ used atomic.Int64 }

// queue holds payloads, and drops the oldest where there are too many.
type queue struct {
	room *Room

	mu      sync.Mutex
	some    *sync.Cond
	waiting [][]byte
	size    int
	closed  bool
}

func newQueue(room *Room) *queue {
	q := &queue{room: room}
	q.some = sync.NewCond(&q.mu)
	return q
}

// put adds a copy of a payload. Where the others leave no room, it may be the one that
// is dropped.
func (q *queue) put(payload []byte) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return
	}
	q.waiting = append(q.waiting, append([]byte(nil), payload...))
	n := len(payload) + perPayload
	q.size += n
	used := q.room.used.Add(int64(n))
	for q.size > MaxQueue || used > MaxQueued && len(q.waiting) > 0 {
		used = q.drop()
	}
	q.some.Signal()
}

// next waits for the oldest payload; ok is false once the queue is closed.
func (q *queue) next() (payload []byte, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.waiting) == 0 && !q.closed {
		q.some.Wait()
	}
	if q.closed {
		return nil, false
	}
	payload = q.waiting[0]
	q.drop()
	return payload, true
}

// drop removes the oldest, and says what all queues hold. mu is held.
func (q *queue) drop() int64 {
	n := len(q.waiting[0]) + perPayload
	q.size -= n
	q.waiting[0] = nil
	q.waiting = q.waiting[1:]
	return q.room.used.Add(int64(-n))
}

func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.waiting) > 0 {
		q.drop()
	}
	q.closed = true
	q.some.Broadcast()
}
