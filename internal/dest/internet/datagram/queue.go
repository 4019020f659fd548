package datagram

import "sync"

// MaxQueue is how many bytes wait for an agent that does not read (B150).
const MaxQueue = 1 << 20

// perPayload is what a waiting payload takes beside its bytes, so that empty ones are
// bounded, too.
const perPayload = 64

// queue holds payloads, and drops the oldest where there are too many.
type queue struct {
	mu      sync.Mutex
	some    *sync.Cond
	waiting [][]byte
	size    int
	closed  bool
}

func newQueue() *queue {
	q := &queue{}
	q.some = sync.NewCond(&q.mu)
	return q
}

// put adds a copy of a payload.
func (q *queue) put(payload []byte) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = append(q.waiting, append([]byte(nil), payload...))
	q.size += len(payload) + perPayload
	for q.size > MaxQueue {
		q.drop()
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

// drop removes the oldest. mu is held.
func (q *queue) drop() {
	q.size -= len(q.waiting[0]) + perPayload
	q.waiting[0] = nil
	q.waiting = q.waiting[1:]
}

func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed, q.waiting = true, nil
	q.some.Broadcast()
}
