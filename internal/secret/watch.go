package secret

import (
	"bytes"
	"errors"
	"slices"
)

// ErrReflected says that an answer has the value of a secret in it (B130).
var ErrReflected = errors.New("the answer has the value of a secret in it")

// Watch looks for values in an answer that passes, as they are, percent-encoded and as
// JSON has them. It holds back only what may be the beginning of one.
type Watch struct {
	forms [][]byte
	held  []byte
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
// After ErrReflected nothing passes any more.
func (w *Watch) Feed(b []byte) ([]byte, error) {
	text := append(w.held, b...)
	keep := 0
	for _, form := range w.forms {
		if bytes.Contains(text, form) {
			clear(text)
			w.held = nil
			return nil, ErrReflected
		}
		keep = max(keep, begun(text, form))
	}
	pass := text[:len(text)-keep]
	w.held = slices.Clone(text[len(pass):])
	return pass, nil
}

// Rest is what was held back, at the end of the answer: it was no value.
func (w *Watch) Rest() []byte {
	rest := w.held
	w.held = nil
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
