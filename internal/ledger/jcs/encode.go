package jcs

import (
	"encoding/base64"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Bytes is a byte string that need not be UTF-8: a path, an argument, a name
// as a cell spelt it. See the package laws for its JSON form.
type Bytes string

// Raw is a value that is canonical already; it is copied as it stands.
type Raw []byte

// Append appends the canonical JSON of v to dst. It knows structs (members
// named by their json tags, with omitempty and omitzero), slices, maps with
// string keys, pointers, strings, [Bytes], [Raw], booleans and integers. It
// refuses floats, interfaces and text that is not UTF-8.
func Append(dst []byte, v any) ([]byte, error) { return Codec{}.Append(dst, v) }

// Append is [Append] with the members that the codec knows.
func (c Codec) Append(dst []byte, v any) ([]byte, error) {
	if v == nil {
		return append(dst, "null"...), nil
	}
	return c.appendValue(dst, reflect.ValueOf(v))
}

func (c Codec) appendValue(dst []byte, v reflect.Value) ([]byte, error) {
	switch v.Kind() {
	case reflect.String:
		if v.Type() == bytesType {
			return AppendBytes(dst, Bytes(v.String())), nil
		}
		return AppendString(dst, v.String())
	case reflect.Bool:
		return strconv.AppendBool(dst, v.Bool()), nil
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		dst = append(dst, '"')
		dst = strconv.AppendInt(dst, v.Int(), 10)
		return append(dst, '"'), nil
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		dst = append(dst, '"')
		dst = strconv.AppendUint(dst, v.Uint(), 10)
		return append(dst, '"'), nil
	case reflect.Pointer:
		if v.IsNil() {
			return append(dst, "null"...), nil
		}
		return c.appendValue(dst, v.Elem())
	case reflect.Slice:
		return c.appendSlice(dst, v)
	case reflect.Map:
		return c.appendMap(dst, v)
	case reflect.Struct:
		return c.appendStruct(dst, v)
	}
	return dst, fmt.Errorf("encode %s: the ledger's JSON has no such type", v.Type())
}

func (c Codec) appendSlice(dst []byte, v reflect.Value) ([]byte, error) {
	if v.Type() == rawType {
		return append(dst, v.Bytes()...), nil
	}
	var err error
	dst = append(dst, '[')
	for i := range v.Len() {
		if i > 0 {
			dst = append(dst, ',')
		}
		if dst, err = c.appendValue(dst, v.Index(i)); err != nil {
			return dst, err
		}
	}
	return append(dst, ']'), nil
}

func (c Codec) appendMap(dst []byte, v reflect.Value) ([]byte, error) {
	if v.Type().Key().Kind() != reflect.String {
		return dst, fmt.Errorf("encode %s: keys are not strings", v.Type())
	}
	keys := v.MapKeys()
	slices.SortFunc(keys, func(a, b reflect.Value) int { return compareUTF16(a.String(), b.String()) })
	var err error
	dst = append(dst, '{')
	for i, k := range keys {
		if i > 0 {
			dst = append(dst, ',')
		}
		if dst, err = AppendString(dst, k.String()); err != nil {
			return dst, err
		}
		dst = append(dst, ':')
		if dst, err = c.appendValue(dst, v.MapIndex(k)); err != nil {
			return dst, err
		}
	}
	return append(dst, '}'), nil
}

func (c Codec) appendStruct(dst []byte, v reflect.Value) ([]byte, error) {
	p, err := c.planOf(v.Type())
	if err != nil {
		return dst, err
	}
	dst = append(dst, '{')
	first := true
	for _, m := range p {
		f := v.Field(m.index)
		if m.omit && isEmpty(f) {
			continue
		}
		if !first {
			dst = append(dst, ',')
		}
		first = false
		dst = append(append(append(dst, '"'), m.name...), '"', ':')
		if dst, err = c.appendValue(dst, f); err != nil {
			return dst, fmt.Errorf("member %s: %w", m.name, err)
		}
	}
	return append(dst, '}'), nil
}

func isEmpty(v reflect.Value) bool {
	if v.Kind() == reflect.Slice || v.Kind() == reflect.Map {
		return v.Len() == 0
	}
	return v.IsZero()
}

// Member is one member of a struct's JSON object, in canonical order.
type Member struct {
	Name     string
	Optional bool
	Type     reflect.Type
}

// Members lists the members of struct type t in canonical order; schemas are
// made from it, so that they cannot differ from what is written.
func Members(t reflect.Type) ([]Member, error) {
	p, err := makePlan(t)
	if err != nil {
		return nil, err
	}
	out := make([]Member, len(p))
	for i, m := range p {
		out[i] = Member{Name: m.name, Optional: m.omit, Type: t.Field(m.index).Type}
	}
	return out, nil
}

type member struct {
	name  string
	index int
	omit  bool
}

// Codec knows the members of some struct types beforehand, so that encoding and
// decoding them sorts nothing. The zero value knows none, and works out each.
type Codec struct{ plans map[reflect.Type][]member }

// NewCodec returns a codec for the struct types of these values and for those
// within them. It panics if one has no JSON, which a test of its types shows.
func NewCodec(values ...any) Codec {
	c := Codec{plans: map[reflect.Type][]member{}}
	for _, v := range values {
		c.learn(reflect.TypeOf(v))
	}
	return c
}

func (c Codec) learn(t reflect.Type) {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		c.learn(t.Elem())
	case reflect.Struct:
		if _, known := c.plans[t]; known {
			return
		}
		p, err := makePlan(t)
		if err != nil {
			panic(err)
		}
		c.plans[t] = p
		for _, m := range p {
			c.learn(t.Field(m.index).Type)
		}
	}
}

func (c Codec) planOf(t reflect.Type) ([]member, error) {
	if p, ok := c.plans[t]; ok {
		return p, nil
	}
	return makePlan(t)
}

func makePlan(t reflect.Type) ([]member, error) {
	var p []member
	for i := range t.NumField() {
		f := t.Field(i)
		tag := f.Tag.Get("json")
		name, opts, _ := strings.Cut(tag, ",")
		if name == "-" {
			continue
		}
		if !f.IsExported() || name == "" || strings.ContainsFunc(name, func(r rune) bool {
			return r != '_' && (r < '0' || r > '9') && (r < 'a' || r > 'z')
		}) {
			return nil, fmt.Errorf("encode %s: field %s needs a plain json name", t, f.Name)
		}
		p = append(p, member{name: name, index: i, omit: opts == "omitempty"})
	}
	slices.SortFunc(p, func(a, b member) int { return strings.Compare(a.name, b.name) })
	return p, nil
}

// AppendString appends s as a JSON string with the escapes of RFC 8785,
// section 3.2.2.2. Text that is not UTF-8 is refused.
func AppendString(dst []byte, s string) ([]byte, error) {
	if isPlain(s) {
		return append(append(append(dst, '"'), s...), '"'), nil
	}
	if !utf8.ValidString(s) {
		return dst, fmt.Errorf("encode a text of %d bytes: not UTF-8", len(s))
	}
	return appendQuoted(dst, s), nil
}

// isPlain reports whether s is printable ASCII that stands for itself.
func isPlain(s string) bool {
	b := []byte(s) // no copy: it is only read
	for i := plainRun(b); i < len(b); i++ {
		if c := b[i]; c < 0x20 || c >= utf8.RuneSelf || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}

func appendQuoted(dst []byte, s string) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	start := 0
	for i := range len(s) {
		c := s[i]
		if c >= 0x20 && c != '"' && c != '\\' {
			continue
		}
		dst = append(dst, s[start:i]...)
		start = i + 1
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\b':
			dst = append(dst, '\\', 'b')
		case '\t':
			dst = append(dst, '\\', 't')
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\f':
			dst = append(dst, '\\', 'f')
		case '\r':
			dst = append(dst, '\\', 'r')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
	}
	dst = append(dst, s[start:]...)
	return append(dst, '"')
}

// AppendBytes appends s in the form of [Bytes].
func AppendBytes(dst []byte, s Bytes) []byte {
	if isPlain(string(s)) {
		return append(append(append(dst, '"'), s...), '"')
	}
	if utf8.ValidString(string(s)) && strings.IndexByte(string(s), 0) < 0 {
		return appendQuoted(dst, string(s))
	}
	dst = append(dst, `{"b64":"`...)
	dst = base64.StdEncoding.AppendEncode(dst, []byte(s))
	return append(dst, `"}`...)
}

// compareUTF16 orders member names as RFC 8785, section 3.2.3 does: by UTF-16
// code units, which differs from byte order above U+FFFF.
func compareUTF16(a, b string) int {
	for a != "" && b != "" {
		ra, na := utf8.DecodeRuneInString(a)
		rb, nb := utf8.DecodeRuneInString(b)
		if ra != rb {
			return slices.Compare(utf16.AppendRune(nil, ra), utf16.AppendRune(nil, rb))
		}
		a, b = a[na:], b[nb:]
	}
	return len(a) - len(b)
}
