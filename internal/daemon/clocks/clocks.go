// Package clocks is what time is it, and when to wake.
//
// Its law: whoever is given one asks no other, so that a test can turn it.
package clocks

import "time"

// Clock is the daemon's only source of time.
type Clock interface {
	Now() time.Time
	// AfterFunc calls f in a goroutine of its own after d, unless stop is called before.
	AfterFunc(d time.Duration, f func()) (stop func())
}

// System is the machine's.
type System struct{}

// Now is the time.
func (System) Now() time.Time { return time.Now() }

// AfterFunc is that of package time.
func (System) AfterFunc(d time.Duration, f func()) func() {
	t := time.AfterFunc(d, f)
	return func() { t.Stop() }
}
