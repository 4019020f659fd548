package tunnel

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"
)

func next(in []byte) ([]byte, error) {
	return NewDatagrams(bufio.NewReader(bytes.NewReader(in))).Next()
}

func TestDatagramsComeBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var stream []byte
		var want [][]byte
		for range rapid.IntRange(0, 6).Draw(t, "capsules") {
			payload := rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "payload")
			switch rapid.IntRange(0, 2).Draw(t, "kind") {
			case 0:
				want = append(want, payload)
				stream = AppendDatagram(stream, payload)
			case 1: // another type
				stream = appendVarint(stream, rapid.Uint64Range(1, 1<<62-1).Draw(t, "type"))
				stream = append(appendVarint(stream, uint64(len(payload))), payload...)
			case 2: // another context
				context := appendVarint(nil, rapid.Uint64Range(1, 1<<62-1).Draw(t, "context"))
				stream = appendVarint(stream, capsuleDatagram)
				stream = append(append(appendVarint(stream, uint64(len(context)+len(payload))), context...), payload...)
			}
		}
		d := NewDatagrams(bufio.NewReader(iotest.OneByteReader(bytes.NewReader(stream))))
		for _, w := range want {
			got, err := d.Next()
			if err != nil || !bytes.Equal(got, w) {
				t.Fatalf("got %x, %v, want %x", got, err, w)
			}
		}
		if got, err := d.Next(); !errors.Is(err, io.EOF) {
			t.Fatalf("after the last comes %x, %v", got, err)
		}
	})
}

// TestLargeCapsules: BU-5, B44.
func TestLargeCapsules(t *testing.T) {
	largest := bytes.Repeat([]byte{7}, MaxPayload)
	if got, err := next(AppendDatagram(nil, largest)); err != nil || !bytes.Equal(got, largest) {
		t.Errorf("the largest payload: %d bytes, %v", len(got), err)
	}
	declared := appendVarint(appendVarint(nil, capsuleDatagram), 1<<20)
	if _, err := next(declared); !errors.Is(err, ErrCapsuleTooLarge) {
		t.Errorf("a mebibyte is declared: %v", err)
	}
	unknown := appendVarint(appendVarint(nil, 0x1234), 1<<20)
	if _, err := next(unknown); !errors.Is(err, ErrCapsuleTooLarge) {
		t.Errorf("a mebibyte of an unknown type is declared: %v", err)
	}
	if _, err := next(AppendDatagram(nil, append(largest, 1))); !errors.Is(err, io.EOF) {
		t.Errorf("a payload that no datagram holds is skipped: %v", err)
	}
}

func TestCutCapsules(t *testing.T) {
	whole := AppendDatagram(nil, []byte("payload"))
	for n := 1; n < len(whole); n++ {
		if got, err := next(whole[:n]); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("cut at %d: %x, %v", n, got, err)
		}
	}
	if _, err := next([]byte{0, 0, 0}); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("a datagram without a context: %v", err)
	}
}

// TestSkippingKeepsNothing: what is not understood costs no memory (B44).
func TestSkippingKeepsNothing(t *testing.T) {
	unknown := append(appendVarint(appendVarint(nil, 0x1234), 60_000), make([]byte, 60_000)...)
	stream := bytes.NewReader(nil)
	buffer := bufio.NewReader(stream)
	d := NewDatagrams(buffer)
	if n := testing.AllocsPerRun(50, func() {
		stream.Reset(unknown)
		buffer.Reset(stream)
		if _, err := d.Next(); !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
	}); n > 0 {
		t.Errorf("%v allocations for a capsule that is skipped", n)
	}
}

func FuzzDatagrams(f *testing.F) {
	f.Add(AppendDatagram(AppendDatagram(nil, []byte("one")), nil))
	f.Add([]byte{0x40, 0x00, 0x80, 0, 0, 1, 0})
	f.Fuzz(func(t *testing.T, in []byte) {
		d := NewDatagrams(bufio.NewReader(bytes.NewReader(in)))
		for sum := 0; ; {
			payload, err := d.Next()
			if err != nil {
				return
			}
			if sum += len(payload) + 1; sum > len(in) {
				t.Fatalf("%d bytes came of %d", sum, len(in))
			}
		}
	})
}
