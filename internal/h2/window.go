package h2

import (
	"fmt"
	"sync"

	"skep.dev/skep/internal/h2/frame"
)

// windows are what may be sent now on a connection and on each stream of it (RFC 9113,
// section 5.2). The connection's lock is held for all that is done with them.
type windows struct {
	left    int64 // of the connection
	initial int64 // of a stream that begins
}

// window is what may be sent now on one stream. An end of the stream wakes, too.
type window struct {
	left int64
	wake *sync.Cond
}

// windowed is a stream of either side.
type windowed interface{ sending() *window }

func newWindows() windows { return windows{left: frame.FirstWindow, initial: frame.FirstWindow} }

func (w *windows) stream(lock *sync.Mutex) window {
	return window{left: w.initial, wake: sync.NewCond(lock)}
}

// room is how much of n bytes one frame of a stream may have; spare bytes of the
// connection's window are left to others.
func (w *windows) room(s *window, n int, spare int64) int {
	return int(max(0, min(int64(n), s.left, w.left-spare, frame.MaxSize)))
}

// take takes what room gives.
func (w *windows) take(s *window, n int, spare int64) int {
	n = w.room(s, n, spare)
	s.left -= int64(n)
	w.left -= int64(n)
	return n
}

// resize obeys SETTINGS, of which only the window of streams matters here; those that
// are open get the difference (section 6.9.2).
func resize[S windowed](w *windows, streams map[uint32]S, f frame.Frame) error {
	all, err := f.Settings()
	if err != nil {
		return err
	}
	for _, setting := range all {
		if setting.ID != frame.SettingWindow {
			continue
		}
		size := int64(setting.Value)
		for _, s := range streams {
			if err := s.sending().grow(size - w.initial); err != nil {
				return err
			}
		}
		w.initial = size
	}
	return nil
}

// grow obeys WINDOW_UPDATE. One of a stream that is over means nothing.
func grow[S windowed](w *windows, streams map[uint32]S, f frame.Frame) error {
	number, err := f.Number()
	if err != nil {
		return err
	}
	n := int64(number & frame.MaxWindow)
	if f.Stream != 0 {
		if s, ok := streams[f.Stream]; ok {
			return s.sending().grow(n)
		}
		return nil
	}
	if w.left += n; w.left > frame.MaxWindow {
		return fmt.Errorf("%w: the connection's window is over its largest", errFrame)
	}
	for _, s := range streams {
		s.sending().wake.Broadcast()
	}
	return nil
}

func (s *window) grow(n int64) error {
	if s.left += n; s.left > frame.MaxWindow {
		return fmt.Errorf("%w: a stream's window is over its largest", errFrame)
	}
	s.wake.Broadcast()
	return nil
}
