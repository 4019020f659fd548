package cases

import (
	"io"
	"net"
	"strings"
	"time"
)

// heads are about how a request is written.
func heads() []Case {
	return []Case{
		{ID: "BC-1", What: "bytes right behind the head are echoed unchanged, over one dial", Run: bytesBehind},
		{ID: "BC-2", What: "HTTP/1.0 without Host", Run: func(b *Bench) {
			b.Start(Setting{}).Opens("CONNECT 127.0.0.1:P HTTP/1.0\r\n\r\n").Echoes(b, "x")
		}},
		{ID: "BC-3", What: "Content-Length on CONNECT is ignored", Run: func(b *Bench) {
			a := b.Start(Setting{}).Opens("CONNECT 127.0.0.1:P HTTP/1.1\r\nHost: 127.0.0.1:P\r\nContent-Length: 3\r\n\r\n")
			a.Echoes(b, "abc")
			a.Echoes(b, "more than three")
		}},
		{ID: "BC-4", What: "no Host", Run: refusals(400, "missing-host", "CONNECT 127.0.0.1:P HTTP/1.1\r\n\r\n")},
		{ID: "BC-5", What: "two equal Hosts", Run: refusals(400, "duplicate-host", "CONNECT 127.0.0.1:P HTTP/1.1\r\nHost: 127.0.0.1:P\r\nHost: 127.0.0.1:P\r\n\r\n")},
		{ID: "BC-6", What: "Host differs", Run: refusals(400, "authority-mismatch",
			"CONNECT ok.test:P HTTP/1.1\r\nHost: other.test:P\r\n\r\n", "CONNECT ok.test:P HTTP/1.1\r\nHost: ok.test:1\r\n\r\n",
			"CONNECT 127.0.0.1:P HTTP/1.1\r\nHost: [::ffff:127.0.0.1]:P\r\n\r\n")},
		{ID: "BC-7", What: "what is no port", Run: refusals(400, "malformed-port",
			get("ok.test:0"), get("ok.test:65536"), get("ok.test:http"), get("ok.test:"), get("ok.test:+443"))},
		{ID: "BC-8", What: "what is no host", Run: refusals(400, "malformed-target",
			get("ok.test"), get("[::1]"), get("::1:P"), get("user@ok.test:P"), get("ok.test:P/path"), get("ok.test:P?q"), get("http://ok.test:P"), get("2130706433:P"))},
		{ID: "BC-9", What: "what is no request line", Run: refusals(400, "malformed-request-line",
			"CONNECT  HTTP/1.1\r\nHost: x\r\n\r\n", "CONNECT ok.test:P\r\nHost: x\r\n\r\n", "CONNECT  ok.test:P HTTP/1.1\r\nHost: x\r\n\r\n",
			"CONNECT\tok.test:P HTTP/1.1\r\nHost: x\r\n\r\n", "CONNECT ok.test:P HTTP/1.1\nHost: ok.test:P\n\n")},
		{ID: "BC-10", What: "another version", Run: refusals(505, "unsupported-version",
			"CONNECT ok.test:P HTTP/2.0\r\nHost: ok.test:P\r\n\r\n", "CONNECT ok.test:P HTTP/1.2\r\nHost: ok.test:P\r\n\r\n")},
		{ID: "BC-11", What: "another method", Run: refusals(405, "connect-only",
			"connect ok.test:P HTTP/1.1\r\nHost: ok.test:P\r\n\r\n", "GET / HTTP/1.1\r\nHost: ok.test:P\r\n\r\n",
			"GET / HTTP/1.1\r\nHost: ok.test:P\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")},
		{ID: "BC-12", What: "what is no field", Run: refusals(400, "malformed-header",
			"CONNECT ok.test:P HTTP/1.1\r\nHost: ok.test:P\r\nBad Header: x\r\n\r\n", "CONNECT ok.test:P HTTP/1.1\r\nHost: ok.test:P\r\nA: b\r\n c\r\n\r\n",
			"CONNECT ok.test:P HTTP/1.1\r\nHost: ok.test:P\r\nA: b\x00c\r\n\r\n")},
		{ID: "BC-13", What: "a field of 70,000 bytes", Run: refusals(431, "head-too-large",
			"CONNECT ok.test:P HTTP/1.1\r\nHost: ok.test:P\r\nA: "+strings.Repeat("x", 70_000)+"\r\n\r\n")},
		{ID: "BC-14", What: "a head that comes byte by byte", Run: slowHead},
	}
}

// refusals sends each of several requests, which all have to be refused so.
func refusals(status int, token string, requests ...string) func(*Bench) {
	return func(b *Bench) {
		x := b.Start(Setting{})
		for _, raw := range requests {
			x.Refused(raw, status, token)
		}
	}
}

func bytesBehind(b *Bench) {
	x := b.Start(Setting{})
	text := "right behind\x00\r\n\r\n"
	a := x.Opens(get("127.0.0.1:P") + text)
	a.Returns(b, text)
	if n := b.echo.count(); n != 1 {
		b.Errorf("%d dials, want one", n)
	}
	r := x.Await("of the intent", func(r Record) bool { return r.Kind == "intent" })
	_ = a.Conn.Close()
	o := x.Await("of the end", func(r Record) bool { return r.Kind == "outcome" })
	at := b.with("127.0.0.1:P")
	if r.Destination != at || r.Policy == "" || r.Sandbox == "" || r.Decision != "allow" || r.Wire != "h1" || r.Direction != "out" || r.Transport != "tcp" || o.Address != at {
		b.Errorf("%+v, %+v", r, o)
	}
}

// slowHead has two seconds in the place of fifteen, which is a listener's own to lower.
func slowHead(b *Bench) {
	x := b.Start(Setting{Flags: []string{"--head-time", "2s"}})
	c, err := net.Dial(x.network, x.at)
	if err != nil {
		b.Fatalf("connect: %v", err)
	}
	defer func() { _ = c.Close() }()
	began := time.Now()
	_ = c.SetDeadline(began.Add(answerTime))
	go func() {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for i := range 1000 {
			<-tick.C
			if _, err := io.WriteString(c, get("ok.test:1")[i%20:i%20+1]); err != nil {
				return
			}
		}
	}()
	got := readAll(c)
	if took := time.Since(began); took < 1900*time.Millisecond || took > 5*time.Second || got != "" && !strings.HasPrefix(got, "HTTP/1.1 408 ") {
		b.Errorf("after %s: %q", took, got)
	}
	x.Await("of the head", func(r Record) bool { return r.Reason == "head-timeout" && r.Decision == "fail" })
}
