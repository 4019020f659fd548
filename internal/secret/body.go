package secret

import (
	"bytes"
	"encoding/json"
	"mime"
	"slices"
	"time"

	"skep.dev/skep/internal/flow"
)

// MaxBody bounds a body in which values are filled in, in bytes (B128).
const MaxBody = 256 << 10

// InBody tells whether a body has to be read whole, because a binding has a place in it.
// One with a content encoding has none.
func (k *Keeper) InBody(host string, port uint16, h Head) bool { return k.bodyKind(host, port, h) != 0 }

func (k *Keeper) bodyKind(host string, port uint16, h Head) Kind {
	media, _, err := mime.ParseMediaType(h.value("Content-Type"))
	if err != nil || h.value("Content-Encoding") != "" {
		return 0
	}
	kind := map[string]Kind{"application/json": JSON, "application/x-www-form-urlencoded": Form}[media]
	at := At{host, port, h.Path()}
	for i := range k.bound {
		if b := &k.bound[i]; b.covers(at) && kind != 0 && slices.ContainsFunc(b.As, func(p Place) bool { return p.Kind == kind }) {
			return kind
		}
	}
	return 0
}

// Body fills a whole body in, as Head does with its head h. The caller gives the request
// the new length.
func (k *Keeper) Body(host string, port uint16, now time.Time, h Head, body []byte) ([]byte, []Use, flow.Reason) {
	if len(body) > MaxBody {
		return nil, nil, flow.SecretTooLarge
	}
	k.mu.RLock()
	defer k.mu.RUnlock()
	f := k.filler(At{host, port, h.Path()}, now)
	text, rest := slices.Clone(body), slices.Clone(body)
	switch k.bodyKind(host, port, h) {
	case JSON:
		text, rest = f.members(body)
	case Form:
		text, rest = f.pairs(Form, body)
	}
	return f.verdict(text, find(rest))
}

// verdict is what was filled in, or nothing where stray placeholders are found or a place
// could not be filled.
func (f *filler) verdict(text []byte, stray []string) ([]byte, []Use, flow.Reason) {
	why, misuse := f.keeper.judge(stray, f.at)
	switch {
	case why != flow.None:
		clear(text)
		return nil, []Use{misuse}, why
	case f.why != flow.None:
		clear(text)
		return nil, f.uses, f.why
	}
	return text, f.uses, flow.None
}

// members fills in the strings that are members of the one object that a body is. All
// other bytes stay as they are. What is not JSON has no place.
func (f *filler) members(body []byte) (text, rest []byte) {
	d := json.NewDecoder(bytes.NewReader(body))
	if open, err := d.Token(); !json.Valid(body) || err != nil || open != json.Delim('{') {
		return slices.Clone(body), slices.Clone(body)
	}
	done := 0
	for d.More() {
		name, err := d.Token()
		var value json.RawMessage
		if err == nil {
			err = d.Decode(&value)
		}
		member, ok := name.(string)
		if err != nil || !ok {
			break
		}
		end := int(d.InputOffset())
		if value[0] != '"' {
			continue
		}
		filled, left := slices.Clone([]byte(value)), slices.Clone([]byte(value))
		for i := range f.keeper.bound {
			filled, left = f.put(&f.keeper.bound[i], Place{JSON, member}, filled, left, quote)
		}
		before := body[done : end-len(value)]
		text, rest = append(append(text, before...), filled...), append(append(rest, before...), left...)
		clear(filled)
		done = end
	}
	return append(text, body[done:]...), append(rest, body[done:]...)
}

// quote is a value inside a JSON string; it is printable ASCII.
func quote(value []byte) []byte {
	out := make([]byte, 0, 2*len(value))
	for _, c := range value {
		if c == '"' || c == '\\' {
			out = append(out, '\\')
		}
		out = append(out, c)
	}
	return out
}
