// Package profiles reads the profiles of requests.
//
// Its laws:
//   - What the client made of a profile is no evidence: its text is read again, strictly.
//   - What is remembered is read from the very same bytes, for the same place and under
//     the same names; whoever gets a profile does not change it.
package profiles

import (
	"slices"
	"sync"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/internal/profile"
)

// most is how many profiles are remembered: those of the runs of one day's work. Reading
// one takes half a millisecond, for which a person waits.
const most = 8

// Reader remembers the profiles that it read last. The zero one is ready.
type Reader struct {
	mu   sync.Mutex
	last []known // the newest first
}

type known struct {
	text    text
	profile *profile.Profile
}

// text is all that a profile is made of.
type text struct{ name, dir, home, source, narrowingName, narrowing string }

// Effective is the profile of a request, narrowed by the project's file, or its faults.
func (r *Reader) Effective(q *skepv1.RunRequest) (*profile.Profile, error) {
	t := text{q.ProfileName, q.ProfileDir, q.Home, string(q.Profile), q.NarrowingName, string(q.Narrowing)}
	if p := r.remembered(t); p != nil {
		return p, nil
	}
	p, err := read(t)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last = slices.Insert(r.last, 0, known{t, p})
	r.last = r.last[:min(len(r.last), most)]
	return p, nil
}

func (r *Reader) remembered(t text) *profile.Profile {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := slices.IndexFunc(r.last, func(k known) bool { return k.text == t })
	if at < 0 {
		return nil
	}
	k := r.last[at]
	r.last = slices.Insert(slices.Delete(r.last, at, at+1), 0, k)
	return k.profile
}

func read(t text) (*profile.Profile, error) {
	at := profile.Place{Dir: t.dir, Home: t.home}
	p, faults := profile.ParseAt(t.name, at, []byte(t.source))
	if faults != nil {
		return nil, faults
	}
	if t.narrowing == "" {
		return p, nil
	}
	n, faults := profile.ParseAt(t.narrowingName, at, []byte(t.narrowing))
	if faults != nil {
		return nil, faults
	}
	p, faults = profile.Narrow(p, n)
	if faults != nil {
		return nil, faults
	}
	return p, nil
}

// IsShipped tells whether the profile is one of ours, to the letter. A narrowing
// file beside it only takes away.
func IsShipped(q *skepv1.RunRequest) bool {
	source, err := profile.ShippedSource(q.ProfileName)
	return err == nil && string(source) == string(q.Profile)
}
