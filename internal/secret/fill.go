package secret

import (
	"bytes"
	"encoding/base64"
	"slices"
	"strings"
	"time"

	"skep.dev/skep/internal/flow"
)

// filler fills one text of one request in: text is what goes on, rest what the agent
// said beside its placeholders in their places. It holds the keeper's lock.
type filler struct {
	keeper *Keeper
	at     At
	now    time.Time
	uses   []Use
	room   int         // bytes of values that may still be filled in
	why    flow.Reason // SecretUnavailable where a value is missing, SecretTooLarge without room
}

// maxFilled bounds the bytes of values in one head, body or message: a small text of
// many placeholders would be a large one of values.
const maxFilled = 64 << 10

func (k *Keeper) filler(at At, now time.Time) *filler {
	return &filler{keeper: k, at: at, now: now, room: maxFilled}
}

// Head fills a request head in for a host and port, or says why the request must not go
// on; the Use is then of the misuse. h stays as it is; what is returned is new.
func (k *Keeper) Head(host string, port uint16, now time.Time, h Head) (Head, []Use, flow.Reason) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	f := k.filler(At{host, port, h.Path()}, now)
	out := Head{Method: h.Method, Version: h.Version}
	rest := Head{Method: h.Method, Version: h.Version}
	var text, left []byte
	text, left = f.target(h.Target)
	out.Target, rest.Target = text, left
	for _, field := range h.Fields {
		text, left = f.field(field)
		out.Fields = append(out.Fields, Field{field.Name, text})
		rest.Fields = append(rest.Fields, Field{field.Name, left})
	}
	f.set(&out)
	if why, misuse := k.judge(find(rest.Bytes()), f.at); why != flow.None {
		out.Wipe()
		return Head{}, []Use{misuse}, why
	}
	if f.why != flow.None {
		out.Wipe()
		return Head{}, f.uses, f.why
	}
	return out, f.uses, flow.None
}

// put replaces a secret's placeholder, if the secret is for this destination and place.
// form spells the value where it stands; rest has a space instead.
func (f *filler) put(b *Bound, place Place, text, rest []byte, form func([]byte) []byte) (filled, left []byte) {
	mark := []byte(b.Placeholder)
	if !b.has(place) || !b.covers(f.at) || !bytes.Contains(text, mark) {
		return text, rest
	}
	f.uses = append(f.uses, Use{Secret: b.Name, Place: place})
	value := f.keeper.value(b.Name, f.now)
	if value == nil {
		f.why = flow.SecretUnavailable
	}
	if form != nil {
		value = form(value)
		defer clear(value)
	}
	if f.room -= bytes.Count(text, mark) * len(value); f.room < 0 {
		f.why = flow.SecretTooLarge
		return text, replace(rest, mark, []byte(" "))
	}
	return replace(text, mark, value), replace(rest, mark, []byte(" "))
}

// replace is bytes.ReplaceAll, into one buffer of the right size, so that no copy of
// what is filled in is left behind.
func replace(text, mark, with []byte) []byte {
	out := make([]byte, 0, max(0, len(text)+bytes.Count(text, mark)*(len(with)-len(mark))))
	for {
		i := bytes.Index(text, mark)
		if i < 0 {
			return append(out, text...)
		}
		out = append(append(out, text[:i]...), with...)
		text = text[i+len(mark):]
	}
}

func (f *filler) field(field Field) (text, rest []byte) {
	name := strings.ToLower(field.Name)
	text, rest = slices.Clone(field.Value), slices.Clone(field.Value)
	if name == "authorization" {
		text, rest = f.authorization(text, rest)
	}
	for i := range f.keeper.bound {
		text, rest = f.put(&f.keeper.bound[i], Place{Header, name}, text, rest, nil)
	}
	return text, rest
}

// authorization fills a bearer token that is a placeholder and nothing else, or the user
// or password of basic credentials (B122).
func (f *filler) authorization(text, rest []byte) (filled, left []byte) {
	scheme, credentials, _ := bytes.Cut(text, []byte(" "))
	credentials = bytes.Trim(credentials, " \t")
	switch strings.ToLower(string(scheme)) {
	case "bearer":
		for i := range f.keeper.bound {
			if b := &f.keeper.bound[i]; string(credentials) == b.Placeholder {
				return f.put(b, Place{Kind: Bearer}, text, rest, nil)
			}
		}
	case "basic":
		plain, err := base64.StdEncoding.DecodeString(string(credentials))
		if err != nil {
			return text, rest // what was found in it is misplaced
		}
		defer clear(plain)
		user, password, ok := bytes.Cut(plain, []byte(":"))
		if !ok {
			return text, rest
		}
		user, userRest, one := f.credential(user)
		password, passwordRest, two := f.credential(password)
		defer clear(user)
		defer clear(password)
		if !one && !two {
			return text, rest
		}
		both := slices.Concat(user, []byte(":"), password)
		defer clear(both)
		out := append(make([]byte, 0, len(scheme)+1+base64.StdEncoding.EncodedLen(len(both))), scheme...)
		out = base64.StdEncoding.AppendEncode(append(out, ' '), both)
		return out, slices.Concat(userRest, []byte(" : "), passwordRest)
	}
	return text, rest
}

func (f *filler) credential(text []byte) (filled, rest []byte, changed bool) {
	filled, rest = slices.Clone(text), slices.Clone(text)
	before := len(f.uses)
	for i := range f.keeper.bound {
		filled, rest = f.put(&f.keeper.bound[i], Place{Kind: Basic}, filled, rest, nil)
	}
	return filled, rest, len(f.uses) > before
}

// set writes headers over where a binding says so: none of the agent's is left.
func (f *filler) set(h *Head) {
	for i := range f.keeper.bound {
		b := &f.keeper.bound[i]
		if !b.Set || !b.covers(f.at) {
			continue
		}
		value := f.keeper.value(b.Name, f.now)
		if value == nil {
			f.why = flow.SecretUnavailable
			continue
		}
		name, text := b.As[0].Name, slices.Clone(value)
		if b.As[0].Kind == Bearer {
			name, text = "Authorization", slices.Concat([]byte("Bearer "), value)
		}
		h.Fields = slices.DeleteFunc(h.Fields, func(o Field) bool {
			same := strings.EqualFold(o.Name, name)
			if same {
				clear(o.Value)
			}
			return same
		})
		h.Fields = append(h.Fields, Field{name, text})
		f.uses = append(f.uses, Use{Secret: b.Name, Place: b.As[0]})
	}
}

// target fills the query in.
func (f *filler) target(target []byte) (text, rest []byte) {
	path, query, has := bytes.Cut(target, []byte("?"))
	if !has {
		return slices.Clone(target), slices.Clone(target)
	}
	text, rest = f.pairs(Query, query)
	defer clear(text)
	return slices.Concat(path, []byte("?"), text), slices.Concat(path, []byte("?"), rest)
}

// pairs fills name=value&... in. A name is compared as it stands, so that an encoded one
// is no place.
func (f *filler) pairs(kind Kind, query []byte) (text, rest []byte) {
	for i, pair := range bytes.Split(query, []byte("&")) {
		name, value, has := bytes.Cut(pair, []byte("="))
		filled, left := slices.Clone(value), slices.Clone(value)
		for j := range f.keeper.bound {
			filled, left = f.put(&f.keeper.bound[j], Place{kind, string(name)}, filled, left, percent)
		}
		if i > 0 {
			text, rest = append(text, '&'), append(rest, '&')
		}
		text, rest = append(text, name...), append(rest, name...)
		if has {
			text, rest = append(append(text, '='), filled...), append(append(rest, '='), left...)
		}
		clear(filled)
	}
	return text, rest
}

// percent encodes all but the unreserved characters (RFC 3986, 2.3).
func percent(value []byte) []byte {
	out := make([]byte, 0, 3*len(value))
	for _, c := range value {
		if strings.IndexByte(letters+digits+"-._~", c) >= 0 {
			out = append(out, c)
			continue
		}
		out = append(out, '%', "0123456789ABCDEF"[c>>4], "0123456789ABCDEF"[c&15])
	}
	return out
}
