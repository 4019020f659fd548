package frame

import (
	"bytes"
	"errors"
	"io"
	"testing"
)

// A frame that is too large is refused by its head, and one that is cut is no frame.
func TestReaderRefuses(t *testing.T) {
	large := bytes.NewReader(append([]byte{0, MaxSize >> 8, 1, Data, 0, 0, 0, 0, 1}, make([]byte, MaxSize+1)...))
	var fault *Fault
	if _, err := (&Reader{From: large}).Next(); !errors.As(err, &fault) || fault.Code != CodeProtocol {
		t.Errorf("a large frame: %v", err)
	}
	if large.Len() != MaxSize+1 {
		t.Errorf("%d bytes of its payload were read", MaxSize+1-large.Len())
	}
	whole := Append(nil, Data, EndStream, 3, []byte("hello"))
	for n := range whole {
		if f, err := (&Reader{From: bytes.NewReader(whole[:n])}).Next(); err == nil {
			t.Errorf("%d bytes are frame %+v", n, f)
		}
	}
	if f, err := (&Reader{From: bytes.NewReader(whole)}).Next(); err != nil || string(f.Payload) != "hello" || f.Stream != 3 || !f.Has(EndStream) {
		t.Errorf("%+v, %v", f, err)
	}
}

// FuzzFrames: whatever comes is frames, a Fault or the end, and a header block stays in its bound.
func FuzzFrames(f *testing.F) {
	f.Add(AppendBlock(AppendSettings(nil, []Setting{{SettingWindow, 7}}), EndStream, 1, make([]byte, MaxSize+1)))
	f.Add(AppendNumber(Append(nil, Headers, Padded|Priority, 1, []byte{1, 0, 0, 0, 0, 0, 9, 0}), WindowUpdate, 0, 1))
	f.Fuzz(func(t *testing.T, b []byte) {
		const most = 1 << 10
		r := Reader{From: bytes.NewReader(b)}
		for {
			one, err := r.Next()
			if err == nil && one.Kind == Headers {
				var block []byte
				if block, err = r.Block(one, most); len(block) > most+MaxSize {
					t.Fatalf("a block of %d bytes", len(block))
				}
			} else if err == nil && one.Kind == Settings {
				_, err = one.Settings()
			} else if err == nil && one.Kind == Data {
				_, err = one.Content()
			}
			var fault *Fault
			if err != nil {
				if !errors.As(err, &fault) && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
					t.Fatal(err)
				}
				return
			}
		}
	})
}
