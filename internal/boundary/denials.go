package boundary

import (
	"slices"
	"sync"
	"time"

	"skep.dev/skep/internal/flow"
)

// KeptDenials is how many refusals a cell is shown of its own (B231).
const KeptDenials = 200

// Denial is one refusal as its cell may know it: what it tried itself, and the line of a
// profile that would permit it.
type Denial struct {
	ID          string
	Time        time.Time // of the last attempt
	Request     flow.Request
	Reason      flow.Reason
	Policy      string // version of it
	AllowWith   string
	Count       uint64
	destination string
}

// Denials are the last refusals of one cell, for the cell itself (B230). A nil one keeps none.
type Denials struct {
	mu   sync.Mutex
	list []*Denial // oldest first
}

// note keeps a refusal; the same one again is counted.
func (d *Denials) note(r Record) {
	if d == nil {
		return
	}
	why, destination := r.Verdict.Refusal(), r.Request.Destination()
	d.mu.Lock()
	defer d.mu.Unlock()
	i := slices.IndexFunc(d.list, func(have *Denial) bool {
		return have.destination == destination && have.Request.Transport == r.Request.Transport && have.Reason == why
	})
	if i < 0 {
		d.list = append(d.list, &Denial{ID: r.Request.ID.String(), Request: r.Request, Reason: why, destination: destination})
		i = len(d.list) - 1
	}
	have := d.list[i]
	have.Time, have.Policy, have.AllowWith = r.Time, r.Policy, r.Verdict.AllowWith
	have.Count += max(r.Request.Count, 1)
	d.list = append(slices.Delete(d.list, i, i+1), have)
	d.list = slices.Delete(d.list, 0, max(0, len(d.list)-KeptDenials))
}

// Inherit begins with what another boundary of the cell has kept, oldest first.
func (d *Denials) Inherit(list []Denial) {
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, one := range list[max(0, len(list)-KeptDenials):] {
		one.destination = one.Request.Destination()
		d.list = append(d.list, &one)
	}
}

// List is what is kept, oldest first.
func (d *Denials) List() []Denial {
	if d == nil {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	out := make([]Denial, len(d.list))
	for i, one := range d.list {
		out[i] = *one
	}
	return out
}
