package intercept

import "sync/atomic"

// room counts what one cell has in memory because it is read whole.
type room struct{ taken atomic.Int64 }

// Take makes room for n bytes, or says that there is none.
func (r *room) Take(n int) bool {
	if r.taken.Add(int64(n)) > maxHeld {
		r.Give(n)
		return false
	}
	return true
}

// Give gives back what was taken.
func (r *room) Give(n int) { r.taken.Add(-int64(n)) }
