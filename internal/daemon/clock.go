package daemon

import "time"

// Clock is the daemon's only source of time; tests turn it by hand.
type Clock interface {
	Now() time.Time
	// AfterFunc calls f in a goroutine of its own after d, unless stop is called before.
	AfterFunc(d time.Duration, f func()) (stop func())
}

// SystemClock is the machine's.
type SystemClock struct{}

// Now is the time.
func (SystemClock) Now() time.Time { return time.Now() }

// AfterFunc is that of package time.
func (SystemClock) AfterFunc(d time.Duration, f func()) func() {
	t := time.AfterFunc(d, f)
	return func() { t.Stop() }
}
