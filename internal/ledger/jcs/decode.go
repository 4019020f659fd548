package jcs

import (
	"encoding/base64"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"unicode/utf8"
)

//nolint:gochecknoglobals // constants of the reflect package
var (
	bytesType = reflect.TypeFor[Bytes]()
	rawType   = reflect.TypeFor[Raw]()
)

// Decode reads the canonical value b into the pointer v. It refuses unknown,
// missing and repeated members, and any form that [Append] would not have
// written for the same value, so that Append(Decode(b)) is b.
func Decode(b []byte, v any) error { return Codec{}.Decode(b, v) }

// Decode is [Decode] with the members that the codec knows.
func (c Codec) Decode(b []byte, v any) error {
	if err := Valid(b); err != nil {
		return err
	}
	p := reflect.ValueOf(v)
	if p.Kind() != reflect.Pointer || p.IsNil() {
		return fmt.Errorf("decode into %T: not a pointer", v)
	}
	s := scanner{b: b, codec: c}
	return s.decode(p.Elem())
}

func (s *scanner) decode(v reflect.Value) error {
	switch v.Kind() {
	case reflect.String:
		if v.Type() == bytesType {
			return s.decodeBytes(v)
		}
		in, err := s.text()
		if err == nil {
			v.SetString(unescape(in))
		}
		return err
	case reflect.Bool:
		switch {
		case s.take("true"):
			v.SetBool(true)
		case s.take("false"):
			v.SetBool(false)
		default:
			return s.fault("no boolean")
		}
		return nil
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return s.decodeInteger(v)
	case reflect.Pointer:
		if s.take("null") {
			v.SetZero()
			return nil
		}
		v.Set(reflect.New(v.Type().Elem()))
		return s.decode(v.Elem())
	case reflect.Slice:
		return s.decodeSlice(v)
	case reflect.Map:
		return s.decodeMap(v)
	case reflect.Struct:
		return s.decodeStruct(v)
	}
	return fmt.Errorf("decode into %s: the ledger's JSON has no such type", v.Type())
}

func (s *scanner) decodeInteger(v reflect.Value) error {
	in, err := s.text()
	if err != nil {
		return err
	}
	text := string(in)
	if v.CanInt() {
		n, err := strconv.ParseInt(text, 10, v.Type().Bits())
		if err != nil || strconv.FormatInt(n, 10) != text {
			return s.fault("no decimal integer of this size")
		}
		v.SetInt(n)
		return nil
	}
	n, err := strconv.ParseUint(text, 10, v.Type().Bits())
	if err != nil || strconv.FormatUint(n, 10) != text {
		return s.fault("no decimal integer of this size")
	}
	v.SetUint(n)
	return nil
}

// decodeBytes refuses base64 of what should have been text, and base64 that
// has another spelling: one byte string, one form.
func (s *scanner) decodeBytes(v reflect.Value) error {
	if !s.take(`{"b64":`) {
		in, err := s.text()
		if err != nil {
			return err
		}
		text := unescape(in)
		if strings.IndexByte(text, 0) >= 0 {
			return s.fault("a byte string with U+0000 as text")
		}
		v.SetString(text)
		return nil
	}
	in, err := s.text()
	if err != nil {
		return err
	}
	out, err := base64.StdEncoding.Strict().DecodeString(string(in))
	if err != nil || !s.take("}") || base64.StdEncoding.EncodeToString(out) != string(in) {
		return s.fault("a b64 form that is not base64 alone")
	}
	if utf8.Valid(out) && strings.IndexByte(string(out), 0) < 0 {
		return s.fault("base64 of a byte string that is text")
	}
	v.SetString(string(out))
	return nil
}

func (s *scanner) decodeSlice(v reflect.Value) error {
	if v.Type() == rawType {
		start := s.i
		if err := s.value(0); err != nil {
			return err
		}
		v.SetBytes(append([]byte(nil), s.b[start:s.i]...))
		return nil
	}
	if !s.take("[") {
		return s.fault("no array")
	}
	out := reflect.MakeSlice(v.Type(), 0, 0)
	if s.take("]") {
		v.Set(out)
		return nil
	}
	for {
		e := reflect.New(v.Type().Elem()).Elem()
		if err := s.decode(e); err != nil {
			return err
		}
		out = reflect.Append(out, e)
		if s.take("]") {
			v.Set(out)
			return nil
		}
		if !s.take(",") {
			return s.fault("no comma in an array")
		}
	}
}

func (s *scanner) decodeMap(v reflect.Value) error {
	if !s.take("{") {
		return s.fault("no object")
	}
	out := reflect.MakeMap(v.Type())
	for !s.take("}") {
		s.take(",")
		name, err := s.text()
		if err != nil {
			return err
		}
		s.take(":")
		e := reflect.New(v.Type().Elem()).Elem()
		if err := s.decode(e); err != nil {
			return err
		}
		k := reflect.New(v.Type().Key()).Elem()
		k.SetString(unescape(name))
		out.SetMapIndex(k, e)
	}
	v.Set(out)
	return nil
}

func (s *scanner) decodeStruct(v reflect.Value) error {
	plan, err := s.codec.planOf(v.Type())
	if err != nil {
		return err
	}
	if !s.take("{") {
		return s.fault("no object")
	}
	next := 0 // members come in the plan's order, since both are sorted
	for !s.take("}") {
		s.take(",")
		in, err := s.text()
		if err != nil {
			return err
		}
		name := unescape(in)
		s.take(":")
		for next < len(plan) && plan[next].name < name {
			if !plan[next].omit {
				return fmt.Errorf("member %q is missing", plan[next].name)
			}
			next++
		}
		if next == len(plan) || plan[next].name != name {
			return fmt.Errorf("member %q is not known", name)
		}
		f := v.Field(plan[next].index)
		if err := s.decode(f); err != nil {
			return fmt.Errorf("member %s: %w", name, err)
		}
		if plan[next].omit && isEmpty(f) {
			return s.fault("member " + name + " that should have been left out")
		}
		next++
	}
	for ; next < len(plan); next++ {
		if !plan[next].omit {
			return fmt.Errorf("member %q is missing", plan[next].name)
		}
	}
	return nil
}
