package secret

import (
	"bytes"
	"errors"
	"slices"
)

// ErrReflected says that an answer has the value of a secret in it (B130).
var ErrReflected = errors.New("the answer has the value of a secret in it")

// Watch looks for values in an answer that passes, as they are, percent-encoded and as
// JSON has them. A quarter of a value may pass, so that nobody waits for the end of an
// ordinary text that ends like the beginning of a value; what may be more is held back.
type Watch struct {
	forms [][]byte
	tail  []byte // the end of what was fed, if it may be the beginning of a value
	sent  int    // how much of it has passed
}

// Watch is for one answer of a host and port: it looks for the values that are for it.
func (k *Keeper) Watch(host string, port uint16) *Watch {
	k.mu.RLock()
	defer k.mu.RUnlock()
	w := &Watch{}
	for _, b := range k.bound {
		if v := k.values[b.Name]; v != nil && slices.Contains(b.Hosts, host) && slices.Contains(b.Ports, port) {
			for _, form := range [][]byte{slices.Clone(v.b), percent(v.b), quote(v.b)} {
				if !slices.ContainsFunc(w.forms, func(o []byte) bool { return bytes.Equal(o, form) }) {
					w.forms = append(w.forms, form)
				}
			}
		}
	}
	return w
}

// Feed returns what may pass of all that was fed; the slice is good until the next call.
// It takes b over. After ErrReflected nothing passes any more.
func (w *Watch) Feed(b []byte) ([]byte, error) {
	text := b
	if len(w.tail) > 0 {
		text = append(w.tail, b...)
	}
	keep, hold := 0, 0
	for _, form := range w.forms {
		if bytes.Contains(text, form) {
			return nil, w.found(text)
		}
		n := begun(text, form)
		if keep = max(keep, n); n > len(form)/4 {
			hold = max(hold, n)
		}
	}
	end := max(w.sent, len(text)-hold)
	pass := text[w.sent:end]
	w.tail = slices.Clone(text[len(text)-keep:])
	w.sent = max(0, end-(len(text)-keep))
	return pass, nil
}

// Flush passes on what is held back, at the end of a message behind which others may
// wait. A message that ends with more than half of a value is taken for one that has it.
func (w *Watch) Flush() ([]byte, error) {
	for _, form := range w.forms {
		if begun(w.tail, form) > len(form)/2 {
			return nil, w.found(w.tail)
		}
	}
	pass := w.tail[w.sent:]
	w.sent = len(w.tail)
	return pass, nil
}

func (w *Watch) found(text []byte) error {
	clear(text)
	w.tail, w.sent = nil, 0
	return ErrReflected
}

// Rest is what was held back, at the end of the answer: it was no value.
func (w *Watch) Rest() []byte {
	rest := w.tail[w.sent:]
	w.tail, w.sent = nil, 0
	return rest
}

// Close overwrites the values.
func (w *Watch) Close() {
	for _, form := range w.forms {
		clear(form)
	}
	w.forms = nil
}

// begun is how many bytes at the end of text are the beginning of form, the most there
// are, by the method of Knuth, Morris and Pratt.
func begun(text, form []byte) int {
	text = text[max(0, len(text)-len(form)+1):]
	if bytes.IndexByte(text, form[0]) < 0 { // the usual case
		return 0
	}
	back := make([]int, len(form))
	for i, n := 1, 0; i < len(form); i++ {
		for n > 0 && form[i] != form[n] {
			n = back[n-1]
		}
		if form[i] == form[n] {
			n++
		}
		back[i] = n
	}
	n := 0
	for _, c := range text {
		for n > 0 && c != form[n] {
			n = back[n-1]
		}
		if c == form[n] {
			n++
		}
	}
	return n
}
