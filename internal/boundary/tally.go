package boundary

import "time"

// Tally finds how many refusals the kernel counted but did not log (B17). The
// log runs behind the counter, so a reading counts only once it is older than
// Lag: all that was logged before it has arrived by then.
type Tally struct {
	logged  uint64 // refusals that came by the log
	filled  uint64 // refusals that were added without one
	reading uint64 // of the kernel's counter
	at      time.Time
	fresh   bool
}

// Logged counts n refusals of the log.
func (t *Tally) Logged(n int) { t.logged += uint64(n) }

// Read takes a reading of the kernel's counter and gives how many refusals are
// certainly missing from the log.
func (t *Tally) Read(counter uint64, now time.Time) uint64 {
	var missing uint64
	if t.fresh && now.Sub(t.at) >= Lag {
		missing = t.missing(t.reading)
		t.fresh = false
	}
	if !t.fresh {
		t.reading, t.at, t.fresh = counter, now, true
	}
	return missing
}

// Total is how many refusals are accounted for, logged or not.
func (t *Tally) Total() uint64 { return t.logged + t.filled }

// Inherit begins with what another box accounted for.
func (t *Tally) Inherit(total uint64) { t.filled = total }

// Last is for the end, when the log has been read to its end.
func (t *Tally) Last(counter uint64) uint64 { return t.missing(counter) }

// Behind reports whether the log may still owe something for this reading.
func (t *Tally) Behind(counter uint64) bool { return counter > t.logged+t.filled }

func (t *Tally) missing(counter uint64) uint64 {
	if counter <= t.logged+t.filled {
		return 0
	}
	n := counter - t.logged - t.filled
	t.filled += n
	return n
}
