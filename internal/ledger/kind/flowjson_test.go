package kind

import (
	"bytes"
	"reflect"
	"testing"

	"pgregory.net/rapid"
)

// anyFlow fills every field of a Flow, also one that is added later.
func anyFlow(t *rapid.T) Flow {
	var f Flow
	v := reflect.ValueOf(&f).Elem()
	text := rapid.OneOf(
		rapid.Just(""), rapid.StringMatching(`[ -~]{0,40}`), rapid.String(),
		rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) }),
		rapid.SampledFrom([]string{"\"", "\\", "a\x00b", "\x7f", "12345678\"", "1234567\\", "\u2028", "é", "\xff", "12345678\xff"}),
	)
	for i := range v.NumField() {
		switch field := v.Field(i); field.Kind() {
		case reflect.String:
			field.SetString(text.Draw(t, v.Type().Field(i).Name))
		case reflect.Uint16, reflect.Uint32, reflect.Uint64:
			n := rapid.OneOf(rapid.Just(uint64(0)), rapid.Uint64()).Draw(t, v.Type().Field(i).Name)
			field.SetUint(n >> (64 - field.Type().Bits()))
		default:
			t.Fatalf("a field of kind %s", field.Kind())
		}
	}
	return f
}

// What is written by hand is byte for byte what the codec writes, refusals of text
// that is no UTF-8 included.
func TestFlowsAreWrittenAsTheCodecWrites(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := anyFlow(t)
		for _, b := range []Body{(*FlowIntent)(&f), (*FlowOutcome)(&f), (*FlowDenied)(&f), FlowIntent(f)} {
			want, refused := codec().Append([]byte("x"), b)
			got, err := Append([]byte("x"), b)
			if (err != nil) != (refused != nil) || err == nil && !bytes.Equal(got, want) {
				t.Fatalf("%T is %s, %v; the codec says %s, %v", b, got, err, want, refused)
			}
		}
	})
	for _, b := range []Body{(*FlowIntent)(nil), (*FlowOutcome)(nil), (*FlowDenied)(nil)} {
		if got, err := Append(nil, b); string(got) != "null" || err != nil {
			t.Errorf("%T is %s, %v", b, got, err)
		}
	}
}

func BenchmarkAppendFlow(b *testing.B) {
	f := FlowIntent{Flow: "5f0c2a", Listener: "native", Direction: "out", Wire: "tls", Transport: "tcp", Destination: "registry.example.org",
		Port: 443, Decision: "allow", Rule: "net-1", Line: 12, Generation: 1, Policy: "8a5edab282632443219e051e4ade2d1d5bbc671c781051bf1437897cbdfea0f1"}
	buf := make([]byte, 0, 1<<10)
	b.Run("by hand", func(b *testing.B) {
		for b.Loop() {
			buf, _ = Append(buf[:0], &f)
		}
	})
	b.Run("codec", func(b *testing.B) {
		for b.Loop() {
			buf, _ = codec().Append(buf[:0], &f)
		}
	})
}
