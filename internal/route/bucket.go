package route

import (
	"sync"
	"time"
)

// Bucket limits how often something may happen: perSecond on average, as many at
// once. The nil Bucket refuses everything.
type Bucket struct {
	mu        sync.Mutex
	perSecond float64
	left      float64
	last      time.Time
	now       func() time.Time
}

// NewBucket starts full. now is the clock.
func NewBucket(perSecond int, now func() time.Time) *Bucket {
	return &Bucket{perSecond: float64(perSecond), left: float64(perSecond), last: now(), now: now}
}

// Take uses one turn if there is one.
func (b *Bucket) Take() bool {
	if b == nil {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fill()
	if b.left < 1 {
		return false
	}
	b.left--
	return true
}

// Wait is how long it takes until there is a turn; 0 if there is one now.
func (b *Bucket) Wait() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fill()
	if b.left >= 1 {
		return 0
	}
	return time.Duration((1 - b.left) / b.perSecond * float64(time.Second))
}

// fill is for holders of mu.
func (b *Bucket) fill() {
	now := b.now()
	if passed := now.Sub(b.last); passed > 0 {
		b.left = min(b.perSecond, b.left+passed.Seconds()*b.perSecond)
	}
	b.last = now
}
