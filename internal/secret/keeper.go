package secret

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"skep.dev/skep/internal/flow"
)

// Bound is a binding of a cell with the placeholder that the cell has.
type Bound struct {
	Binding
	Placeholder string
}

// Use is one placeholder that was filled in, or a misuse of one.
type Use struct {
	Secret string
	Place  Place
	End    bool // the binding says that this misuse ends the cell
}

// Keeper has the bindings and values of one cell. Its zero value has none, and it is
// safe for concurrent use.
type Keeper struct {
	bound []Bound

	mu     sync.RWMutex // read while a value is filled in, so that it is not wiped meanwhile
	values map[string]*held
}

type held struct {
	*Value
	until time.Time // zero: without end
}

// NewKeeper makes one without values. Bindings are those of NewBinding; their sources are
// of no interest.
func NewKeeper(bound []Bound) (*Keeper, error) {
	k := &Keeper{bound: slices.Clone(bound), values: map[string]*held{}}
	for i, b := range k.bound {
		again, err := b.normal()
		if err != nil {
			return nil, err
		}
		k.bound[i].Binding = again
		if !strings.HasPrefix(b.Placeholder, prefix+b.Name+"-") || len(b.Placeholder) != len(prefix+b.Name)+1+hexes || first([]byte(b.Placeholder)) != b.Placeholder {
			return nil, fmt.Errorf("secret %q: a placeholder that is none of its own", b.Name)
		}
		if slices.ContainsFunc(k.bound[:i], func(o Bound) bool { return o.Name == b.Name }) {
			return nil, fmt.Errorf("secret %q is bound twice", b.Name)
		}
	}
	return k, nil
}

// Set gives a secret its value from the next request on, until a time that may be zero
// (B131). The one before is wiped; a nil value leaves none.
func (k *Keeper) Set(name string, v *Value, until time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if old := k.values[name]; old != nil && old.Value != v {
		old.Wipe()
	}
	delete(k.values, name)
	if v != nil && slices.ContainsFunc(k.bound, func(b Bound) bool { return b.Name == name }) {
		k.values[name] = &held{v, until}
	}
}

// Values hands each value on, which stays the keeper's.
func (k *Keeper) Values(each func(name string, value []byte, until time.Time)) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	for name, v := range k.values {
		each(name, v.b, v.until)
	}
}

// Close wipes every value.
func (k *Keeper) Close() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, v := range k.values {
		v.Wipe()
	}
	clear(k.values)
}

// Bound tells whether some secret is for a name and port: only such a flow is read (B123).
func (k *Keeper) Bound(host string, port uint16) bool {
	return slices.ContainsFunc(k.bound, func(b Bound) bool { return slices.Contains(b.Hosts, host) && slices.Contains(b.Ports, port) })
}

// Hosts are the bound names, sorted: what the cell's authority may sign for (B124).
func (k *Keeper) Hosts() []string {
	var hosts []string
	for _, b := range k.bound {
		hosts = append(hosts, b.Hosts...)
	}
	slices.Sort(hosts)
	return slices.Compact(hosts)
}

// value is for holders of mu. A value is never used past its end (B131).
func (k *Keeper) value(name string, now time.Time) []byte {
	v := k.values[name]
	if v == nil || !v.until.IsZero() && !now.Before(v.until) {
		return nil
	}
	return v.b
}

// judge says why a placeholder that was found must not go to a destination (B129): the
// gravest reason of all, or None where none was found.
func (k *Keeper) judge(found []string, at At) (flow.Reason, Use) {
	why, use := flow.None, Use{}
	for _, text := range found {
		i := slices.IndexFunc(k.bound, func(b Bound) bool { return b.Placeholder == text })
		switch {
		case i < 0:
			return flow.SecretUnknown, Use{}
		case !k.bound[i].covers(at):
			why, use = flow.SecretNotBound, Use{Secret: k.bound[i].Name, End: use.End || k.bound[i].End}
		case why == flow.None:
			why, use = flow.SecretMisplaced, Use{Secret: k.bound[i].Name, End: k.bound[i].End}
		default:
			use.End = use.End || k.bound[i].End
		}
	}
	return why, use
}

// Stray judges what is found in text that no place is in: the rest of a body, a message,
// a request to a host without a secret.
type Stray struct {
	keeper *Keeper
	at     At
	finder Finder
}

// Stray begins such a text.
func (k *Keeper) Stray(at At) *Stray { return &Stray{keeper: k, at: at} }

// Feed takes the next piece; with a reason it must not be sent on, nor anything behind it.
func (s *Stray) Feed(b []byte) (flow.Reason, Use) {
	return s.keeper.judge(s.finder.Feed(b), s.at)
}
