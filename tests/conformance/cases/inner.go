package cases

import (
	"crypto/tls"
	"io"
	"net"
	"strings"
	"time"

	"skep.dev/skep/internal/testlab"
)

// inner are about addresses behind names, and about what is said inside a tunnel.
func inner() []Case {
	return []Case{
		{ID: "BX-1", What: "a name that is loopback only: refused, and with a literal rule for that port reached", Run: loopbackName},
		{ID: "BX-4", What: "one good address among bad ones: the bad are never dialed", Run: mixed},
		{ID: "BX-7", What: "special addresses in every spelling", Run: special},
		{ID: "BX-9", What: "a wide prefix admits no special address", Run: wide},
		{ID: "BX-10", What: "TLS for the name passes, for another or for none it is ended", Run: serverName},
		{ID: "BX-11", What: "a hello in one-byte segments is judged the same", Run: segments},
		{ID: "BX-12", What: "what is no TLS passes on any port, and not under `inner: tls`", Run: noTLS},
		{ID: "BX-13", What: "plain HTTP: Host on every request, and nothing but HTTP", Run: plainHTTP},
		{ID: "BX-14", What: "a hello that may hide a name passes by the one it shows, and not under `ech: refuse`", Run: hiddenName},
	}
}

func loopbackName(b *Bench) {
	b.resolving("", "loop.test")
	x := b.Start(Setting{Allow: "    - {name: loop.test, ports: [P]}\n"})
	x.Refused(get("loop.test:P"), 403, "resolved-address-denied")
	y := b.Start(Setting{Allow: "    - {name: loop.test, ports: [P]}\n    - {ip: 127.0.0.1, ports: [P]}\n"})
	y.Opens(get("loop.test:P")).Echoes(b, "x")
}

func mixed(b *Bench) {
	allow := b.resolving("    - {name: mixed.test, ports: [P]}\n")
	b.Host("mixed.test", "127.0.0.2", "169.254.169.254", "10.0.0.1", "127.0.0.1")
	x := b.Start(Setting{Allow: allow})
	a := x.Opens(get("mixed.test:P"))
	a.Echoes(b, "x")
	_ = a.Conn.Close()
	x.Await("of the one that was kept", func(r Record) bool { return r.Kind == "outcome" && r.Address == b.with("127.0.0.1:P") })
	if n := b.echo.count(); n != 1 {
		b.Errorf("%d dials, want one", n)
	}
}

func special(b *Bench) {
	x := b.Start(Setting{Allow: "    - {name: \"*\", ports: [P]}\n    - {cidr: \"0.0.0.0/0\", ports: [P]}\n    - {cidr: \"::/0\", ports: [P]}\n"})
	for _, host := range []string{
		"0.0.0.1", "10.0.0.1", "127.0.0.1", "169.254.169.254", "172.16.0.1", "192.168.0.1", "198.18.0.1", "224.0.0.1", "255.255.255.255", "100.64.0.1",
		"[::1]", "[::]", "[::ffff:10.0.0.1]", "[64:ff9b::a00:1]", "[2002:a00:1::]", "[fe80::1]", "[fc00::1]", "[fec0::1]", "[ff02::1]", "[100::1]", "[::127.0.0.1]",
	} {
		x.Refused(get(host+":P"), 403, "ip-not-on-allowlist")
	}
	for _, host := range []string{"0x7f.1", "0177.0.0.1", "127.1", "2130706433"} {
		x.Refused(get(host+":P"), 400, "malformed-target")
	}
}

func wide(b *Bench) {
	b.Start(Setting{Allow: "    - {cidr: \"0.0.0.0/0\", ports: [P]}\n"}).Refused(get("10.0.0.1:P"), 403, "ip-not-on-allowlist")
}

// hello is the first message of a TLS client that asks for a name, or for none.
func hello(b *Bench, name string) []byte {
	b.Helper()
	return helloOf(b, &tls.Config{ServerName: name, InsecureSkipVerify: true})
}

func helloOf(b *Bench, config *tls.Config) []byte {
	b.Helper()
	near, far := net.Pipe()
	defer func() { _ = near.Close(); _ = far.Close() }()
	go func() {
		_ = tls.Client(far, config).Handshake() // a case sends no secret
	}()
	_ = near.SetDeadline(time.Now().Add(answerTime))
	head := make([]byte, 5)
	if _, err := io.ReadFull(near, head); err != nil {
		b.Fatalf("make a hello: %v", err)
	}
	body := make([]byte, int(head[3])<<8|int(head[4]))
	if _, err := io.ReadFull(near, body); err != nil {
		b.Fatalf("make a hello: %v", err)
	}
	return append(head, body...)
}

// denied is a fatal alert access_denied in plaintext (B64).
const denied = "\x15\x03\x01\x00\x02\x02\x31"

func serverName(b *Bench) {
	x := b.Start(Setting{})
	for name, token := range map[string]string{"other.test": "tls-name-mismatch", "": "tls-name-missing"} {
		a := x.Opens(get("ok.test:P"))
		_, _ = a.Conn.Write(hello(b, name))
		if got := readAll(a.Rest); got != denied {
			b.Errorf("a hello for %q: %q, want an alert and the end", name, got)
		}
		x.Await("of the hello", func(r Record) bool { return r.Kind == "outcome" && r.Reason == token && r.Bytes.Up == 0 })
	}
	if b.echo.has("\x16\x03") {
		b.Errorf("a hello went upstream")
	}
	good := hello(b, "ok.test")
	x.Opens(get("ok.test:P")).Echoes(b, string(good))
}

func hiddenName(b *Bench) {
	x := b.Start(Setting{Allow: "    - {name: ok.test, ports: [P], resolve: [127.0.0.1]}\n    - {name: plain.test, ports: [P], resolve: [127.0.0.1], ech: refuse}\n"})
	hidden := func(shown string) []byte {
		list, err := testlab.ECHFor(shown)
		if err != nil {
			b.Fatalf("%v", err)
		}
		return helloOf(b, &tls.Config{ServerName: "hidden.test", MinVersion: tls.VersionTLS13, EncryptedClientHelloConfigList: list})
	}
	x.Opens(get("ok.test:P")).Echoes(b, string(hidden("ok.test")))
	a := x.Opens(get("plain.test:P"))
	_, _ = a.Conn.Write(hidden("plain.test"))
	if got := readAll(a.Rest); got != denied {
		b.Errorf("%q, want an alert and the end", got)
	}
	x.Await("of the hello", func(r Record) bool { return r.Kind == "outcome" && r.Reason == "ech-refused" && r.Bytes.Up == 0 })
	x.Opens(get("plain.test:P")).Echoes(b, string(hello(b, "plain.test")))
}

func segments(b *Bench) {
	x := b.Start(Setting{})
	for name, want := range map[string]string{"other.test": denied, "ok.test": ""} {
		a := x.Opens(get("ok.test:P"))
		text := hello(b, name)
		for i := range text {
			if _, err := a.Conn.Write(text[i : i+1]); err != nil {
				b.Fatalf("write a hello: %v", err)
			}
		}
		if want == "" {
			a.Returns(b, string(text))
		} else if got := readAll(a.Rest); got != want {
			b.Errorf("%q", got)
		}
	}
}

func noTLS(b *Bench) {
	x := b.Start(Setting{})
	x.Opens(get("ok.test:P")).Echoes(b, "SSH-2.0-x\r\n")
	y := b.Start(Setting{Allow: "    - {name: ok.test, ports: [P], resolve: [127.0.0.1], inner: tls}\n"})
	a := y.Opens(get("ok.test:P"))
	_, _ = io.WriteString(a.Conn, "SSH-2.0-never\r\n")
	if got := readAll(a.Rest); got != "" || b.echo.has("never") {
		b.Errorf("%q, or it went upstream", got)
	}
	y.Await("that TLS was demanded", func(r Record) bool { return r.Reason == "tls-required" })
}

func plainHTTP(b *Bench) {
	x := b.Start(Setting{Allow: "    - {name: ok.test, ports: [P], resolve: [127.0.0.1], http: true}\n"})
	a := x.Opens(get("ok.test:P"))
	first := b.with("GET /first HTTP/1.1\r\nHost: ok.test:P\r\n\r\n")
	a.Echoes(b, first)
	_, _ = io.WriteString(a.Conn, "GET /second HTTP/1.1\r\nHost: other.test\r\n\r\n")
	if got := readAll(a.Rest); !strings.HasPrefix(got, "HTTP/1.1 421 ") || strings.Count(got, "Proxy-Status:") != 1 || !strings.Contains(got, "reason=http-host-mismatch") {
		b.Errorf("%q", got)
	}
	c := x.Opens(get("ok.test:P"))
	_, _ = io.WriteString(c.Conn, "SSH-2.0-never\r\n\r\n")
	if got := readAll(c.Rest); strings.Contains(got, "SSH") {
		b.Errorf("%q", got)
	}
	x.Await("that HTTP was demanded", func(r Record) bool { return r.Reason == "http-required" })
	if b.echo.has("/second") || b.echo.has("never") {
		b.Errorf("what was refused went upstream")
	}
}
