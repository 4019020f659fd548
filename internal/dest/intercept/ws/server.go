package ws

import (
	"skep.dev/skep/internal/secret"
)

// Server is the direction from the destination.
type Server struct {
	frames
	data, control *secret.Watch
	out           []byte
}

// NewServer is for a destination by its name and port. Close ends it.
func NewServer(k *secret.Keeper, host string, port uint16) *Server {
	return &Server{data: k.Watch(host, port), control: k.Watch(host, port)}
}

// Close overwrites the values that it looks for.
func (s *Server) Close() {
	s.data.Close()
	s.control.Close()
}

// Feed takes what the destination has sent, and takes it over, and returns what may go
// on, good until the next call. secret.ErrReflected: a value is in it.
func (s *Server) Feed(b []byte) ([]byte, error) {
	s.out = s.out[:0]
	for len(b) > 0 || s.inside && s.left == 0 {
		if !s.inside {
			rest, whole, err := s.next(b)
			if err != nil {
				return nil, err
			}
			if b = rest; !whole {
				break
			}
			s.out = append(s.out, s.head[:s.have]...)
		}
		piece := b[:min(uint64(len(b)), s.left)]
		b = b[len(piece):]
		s.left -= uint64(len(piece))
		if err := s.payload(piece); err != nil {
			return nil, err
		}
	}
	return s.out, nil
}

// payload passes a piece on. Behind a frame nothing is held back, since the next one may
// be a ping.
func (s *Server) payload(piece []byte) error {
	watch := s.data
	if s.frame.control() {
		watch = s.control
	}
	text, err := watch.Feed(piece)
	if err != nil {
		return err
	}
	s.out = append(s.out, text...)
	if s.left > 0 {
		return nil
	}
	text, err = watch.Flush()
	s.out = append(s.out, text...)
	s.end()
	return err
}
