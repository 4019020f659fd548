package h2

import (
	"bufio"
	"encoding/binary"
	"errors"
	"net"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"skep.dev/skep/internal/h2/frame"
)

// TestStreamLeavesRoomForAnswers is the attack: a client that gives nothing of the
// connection's window back has the stream fill it, and other calls get their answers
// whole all the same.
func TestStreamLeavesRoomForAnswers(t *testing.T) {
	here, there := net.Pipe()
	defer there.Close()
	s := NewServer(here)
	defer s.Close()
	go func() {
		_ = s.Run(func(c *Call) {
			if len(c.Body) > 0 {
				_ = c.Answer(200, "text/plain", make([]byte, frame.MaxSize))
				return
			}
			c.Go(func() {
				if c.Begin("text/plain") == nil {
					_ = c.Part(make([]byte, 1<<20), true)
				}
			})
		}, func() {})
	}()
	go func() {
		block := appendHead(nil, []Field{{":method", "POST"}, {":path", "/p"}})
		raw := frame.AppendBlock([]byte(frame.Preface), frame.EndStream, 1, block)
		_, _ = there.Write(frame.AppendNumber(raw, frame.WindowUpdate, 1, 1<<20)) // the stream's own is large
	}()
	in := frame.Reader{From: bufio.NewReader(there)}
	got := map[uint32]int{}
	asked := false
	for got[3] < frame.MaxSize {
		f, err := in.Next()
		if err != nil {
			t.Fatal(err)
		}
		switch f.Kind {
		case frame.Reset:
			t.Fatalf("after %d bytes of the stream the answer was broken off", got[1])
		case frame.Data:
			got[f.Stream] += len(f.Payload)
		}
		if got[1] >= frame.FirstWindow-forAnswers && !asked {
			asked = true
			go func() {
				block := appendHead(nil, []Field{{":method", "POST"}, {":path", "/p"}})
				raw := frame.AppendBlock(nil, 0, 3, block)
				_, _ = there.Write(frame.Append(raw, frame.Data, frame.EndStream, 3, []byte("x")))
			}()
		}
	}
	if got[1] > frame.FirstWindow-forAnswers {
		t.Errorf("the stream took %d bytes", got[1])
	}
}

// What the peer allows is what is sent: windows follow SETTINGS also where they become
// negative, and one over the largest ends the connection (RFC 9113, section 6.9).
func TestWindowsFollowThePeer(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var lock sync.Mutex
		w, all, initial := newWindows(), int64(frame.FirstWindow), int64(frame.FirstWindow)
		streams, want := map[uint32]*Call{}, map[uint32]int64{}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			id := uint32(rapid.IntRange(1, 3).Draw(t, "stream"))
			n := rapid.Uint32().Draw(t, "amount")
			var err error
			over := false
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0:
				if streams[id] == nil {
					streams[id], want[id] = &Call{window: w.stream(&lock)}, initial
				}
			case 1:
				err = resize(&w, streams, frame.Frame{Kind: frame.Settings, Payload: binary.BigEndian.AppendUint32([]byte{0, frame.SettingWindow}, n)})
				over = n > frame.MaxWindow
				for id := range want {
					want[id] += int64(n) - initial
					over = over || want[id] > frame.MaxWindow
				}
				initial = int64(n)
			case 2:
				id := id % 2 // 0 is the connection
				err = grow(&w, streams, frame.Frame{Kind: frame.WindowUpdate, Stream: id, Payload: binary.BigEndian.AppendUint32(nil, n)})
				if n &= frame.MaxWindow; id == 0 {
					all += int64(n)
					over = all > frame.MaxWindow
				} else if streams[id] != nil {
					want[id] += int64(n)
					over = want[id] > frame.MaxWindow
				}
			case 3:
				if streams[id] == nil {
					continue
				}
				sent := int64(w.take(&streams[id].window, int(n), forAnswers))
				if sent > 0 && (sent > want[id] || sent > all-forAnswers) || sent < 0 || sent > frame.MaxSize {
					t.Fatalf("%d bytes were sent in windows of %d and %d", sent, want[id], all)
				}
				all, want[id] = all-sent, want[id]-sent
			}
			var fault *frame.Fault
			if over != (errors.Is(err, errFrame) || errors.As(err, &fault)) {
				t.Fatalf("over the largest: %v, %v", over, err)
			}
			if over {
				return
			}
		}
		if w.left != all {
			t.Fatalf("the connection has %d, want %d", w.left, all)
		}
		for id, c := range streams {
			if c.left != want[id] {
				t.Fatalf("stream %d has %d, want %d", id, c.left, want[id])
			}
		}
	})
}
