package outputlog

import (
	"bytes"
	"encoding/binary"
	"testing"
)

// ring is a log as warden/log.c writes it.
type ring struct {
	file  []byte
	total uint64
}

func newRing() *ring {
	return &ring{file: append([]byte(magic), make([]byte, header-8+Head+Tail)...)}
}

func (r *ring) write(p []byte) {
	for len(p) > 0 {
		n := copy(r.file[offset(r.total):][:min(piece(r.total, r.total+uint64(len(p))), uint64(len(p)))], p)
		p, r.total = p[n:], r.total+uint64(n)
	}
	binary.LittleEndian.PutUint64(r.file[8:], r.total)
}

func read(t interface{ Fatal(...any) }, r *ring, from uint64) (out []byte, dropped, end uint64) {
	end, err := Read(bytes.NewReader(r.file), from, func(p []byte, lost uint64) error {
		out = append(out, p...)
		dropped += lost
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out, dropped, end
}

func pattern(from, n int) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte((from + i) * 7 / 3)
	}
	return p
}

func TestHeadAndTailAreKept(t *testing.T) {
	for name, n := range map[string]int{
		"empty": 0, "short": 10, "head": Head, "one more": Head + 1, "full": Head + Tail, "lost one": Head + Tail + 1, "lost much": Head + 3*Tail + 17,
	} {
		t.Run(name, func(t *testing.T) {
			r := newRing()
			all := pattern(0, n)
			r.write(all)
			got, dropped, end := read(t, r, 0)
			want := all
			if lost := n - Head - Tail; lost > 0 {
				want = append(append([]byte{}, all[:Head]...), all[n-Tail:]...)
				if dropped != uint64(lost) {
					t.Errorf("dropped %d, want %d", dropped, lost)
				}
			}
			if !bytes.Equal(got, want) || end != uint64(n) {
				t.Errorf("got %d bytes to %d, want %d", len(got), end, len(want))
			}
		})
	}
}

// A follower that reads in time sees every byte once.
func TestFollowing(t *testing.T) {
	for _, sizes := range [][]int{
		{0, 1, Head - 2, 1, 1, 1}, {Head, Tail, Tail, 5}, {Head + 7, Tail - 7, 7, 64 << 10, Tail}, {3 * chunk / 2, chunk, 2 * Head},
	} {
		r := newRing()
		var all, seen []byte
		var at uint64
		for _, n := range sizes {
			p := pattern(len(all), n)
			r.write(p)
			all = append(all, p...)
			got, dropped, end := read(t, r, at)
			if dropped > 0 {
				t.Fatalf("%v: dropped %d", sizes, dropped)
			}
			seen, at = append(seen, got...), end
		}
		if !bytes.Equal(seen, all) {
			t.Fatalf("%v: saw %d bytes of %d", sizes, len(seen), len(all))
		}
	}
}

func TestOtherFormIsRefused(t *testing.T) {
	f := bytes.NewReader(make([]byte, 128))
	if _, err := Read(f, 0, nil); err == nil {
		t.Error("zeros were read as a log")
	}
	if n, err := Read(bytes.NewReader(nil), 0, nil); n != 0 || err != nil {
		t.Errorf("a log that has not begun: %d, %v", n, err)
	}
}
