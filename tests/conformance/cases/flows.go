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
		{ID: "BG-21", What: "what is forged on one channel is decided as that channel's", Run: apart},
		{ID: "BG-22", What: "revoked in mid-transfer: reported when it is over, and another is untouched", Run: revoked},
		{ID: "BG-23", What: "a successor on the same path has its own policy and version, and no old connection", Run: successor},
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

func apart(b *Bench) {
	x := b.Start(Setting{Allow: "    - {name: a.test, ports: [P], resolve: [127.0.0.1]}\n"})
	y := b.Start(Setting{Allow: "    - {name: b.test, ports: [P], resolve: [127.0.0.1]}\n"})
	lies := "Sandbox-Id: b\r\nX-Skep-Agent: b\r\nProxy-Authorization: Basic Yjpi\r\n"
	x.Refused("CONNECT b.test:P HTTP/1.1\r\nHost: b.test:P\r\n"+lies+"\r\n", 403, "not-on-allowlist")
	x.Opens("CONNECT a.test:P HTTP/1.1\r\nHost: a.test:P\r\n"+lies+"\r\n").Echoes(b, "x")
	for _, r := range y.Records() {
		if r.Destination != "" {
			b.Errorf("the other has %+v", r)
		}
	}
}

func revoked(b *Bench) {
	x, y := b.Start(Setting{}), b.Start(Setting{})
	mine, theirs := x.Opens(get("127.0.0.1:P")), y.Opens(get("127.0.0.1:P"))
	mine.Echoes(b, "in the middle")
	theirs.Echoes(b, "in the middle")
	x.Stop()
	ended := false
	for _, r := range x.Records() { // at once: it has gone
		ended = ended || r.Kind == "outcome" && r.Reason == "revoked" && r.Bytes.Up == uint64(len("in the middle"))
	}
	if rest := readAll(mine.Rest); rest != "" || !ended {
		b.Errorf("%q, or it was gone before the end was recorded: %+v", rest, x.Records())
	}
	if _, err := net.Dial(x.network, x.at); err == nil {
		b.Errorf("the old socket accepts")
	}
	theirs.Echoes(b, "untouched")
}

func successor(b *Bench) {
	x := b.Start(Setting{Allow: "    - {name: a.test, ports: [P], resolve: [127.0.0.1]}\n"})
	old := x.Opens(get("a.test:P"))
	old.Echoes(b, "x")
	x.Stop()
	y := b.Start(Setting{Socket: filepath.Clean(x.at), Allow: "    - {name: b.test, ports: [P], resolve: [127.0.0.1]}\n", Flags: []string{"--generation", "2"}})
	_, _ = io.WriteString(old.Conn, get("b.test:P")) // the old connection is nobody's
	if rest := readAll(old.Rest); rest != "" {
		b.Errorf("the old connection says %q", rest)
	}
	y.Opens(get("b.test:P")).Echoes(b, "x")
	y.Refused(get("a.test:P"), 403, "not-on-allowlist")
	first, next := x.Await("of the first", func(r Record) bool { return r.Kind == "intent" }), y.Await("of the next", func(r Record) bool { return r.Kind == "intent" })
	if first.Policy == next.Policy || first.Generation == next.Generation {
		b.Errorf("%+v, then %+v", first, next)
	}
}
