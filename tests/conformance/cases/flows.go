package cases

import (
	"crypto/sha256"
	"io"
	"math/rand/v2"
	"net"
	"path/filepath"
	"time"
)

// flows are about what an open tunnel carries, and how it ends: the cases of the guest
// path that the socket itself can show.
func flows() []Case {
	return []Case{
		{ID: "BG-15", What: "the boundary is killed: open flows end, nobody listens, and another takes its place", Run: killed},
		{ID: "BG-17", What: "64 MiB each way are exact, and half-close stays half-close", Run: bulk},
	}
}

func killed(b *Bench) {
	x := b.Start(Setting{})
	a := x.Opens(get("127.0.0.1:P"))
	a.Echoes(b, "alive")
	x.Kill()
	if rest := readAll(a.Rest); rest != "" {
		b.Errorf("%q after the end", rest)
	}
	refused := func() bool {
		c, err := net.Dial(x.network, x.at)
		if err == nil {
			_ = c.Close()
		}
		return err != nil
	}
	if !await(answerTime, refused) {
		b.Fatalf("somebody listens")
	}
	y := b.Start(Setting{Socket: filepath.Clean(x.at)})
	y.Opens(get("127.0.0.1:P")).Echoes(b, "again")
}

func bulk(b *Bench) {
	const size = 64 << 20
	x := b.Start(Setting{})
	a := x.Opens(get("127.0.0.1:P"))
	_ = a.Conn.SetDeadline(time.Now().Add(time.Minute))
	sent := make(chan [32]byte, 1)
	go func() {
		sum, random, piece := sha256.New(), rand.NewChaCha8([32]byte{1}), make([]byte, 99_999)
		for left := size; left > 0; left -= len(piece) {
			piece = piece[:min(left, len(piece))]
			_, _ = random.Read(piece)
			_, _ = sum.Write(piece)
			if _, err := a.Conn.Write(piece); err != nil {
				break // the sums will differ
			}
		}
		if c, ok := a.Conn.(interface{ CloseWrite() error }); ok {
			_ = c.CloseWrite()
		}
		sent <- [32]byte(sum.Sum(nil))
	}()
	sum := sha256.New()
	n, err := io.Copy(sum, a.Rest)
	if want := <-sent; n != size || err != nil || want != [32]byte(sum.Sum(nil)) {
		b.Errorf("%d of %d bytes came back, %v, or others", n, size, err)
	}
	x.Await("with every byte", func(r Record) bool {
		return r.Kind == "outcome" && r.Bytes.Up == size && r.Bytes.Down == size && r.Reason == ""
	})
}
