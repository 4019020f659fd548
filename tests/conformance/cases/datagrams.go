package cases

import (
	"encoding/binary"
	"io"
	"net"
	"strings"
)

// datagrams are about connect-udp (RFC 9298).
func datagrams() []Case {
	return []Case{
		{ID: "BU-1", What: "an upgrade, and a datagram that is echoed", Run: func(b *Bench) {
			x := b.Start(udpSetting())
			a := x.upgrade("udp.test")
			a.sends(b, "ping", "ping")
			_ = a.Conn.Close()
			x.Await("of UDP", func(r Record) bool {
				return r.Kind == "outcome" && r.Transport == "udp" && r.Bytes.Up == 4 && r.Bytes.Down == 4 && r.Address == b.with("127.0.0.1:P")
			})
		}},
		{ID: "BU-3", What: "an unlisted literal", Run: udpRefusals(403, "ip-not-on-allowlist", template("127.0.0.2"))},
		{ID: "BU-4", What: "a rule for TCP only", Run: udpRefusals(403, "transport-not-allowed", template("127.0.0.1"), template("ok.test"))},
		{ID: "BU-5", What: "a capsule of 1 MiB", Run: func(b *Bench) {
			a := b.Start(udpSetting()).upgrade("udp.test")
			_, _ = a.Conn.Write([]byte{0, 0x80, 0x10, 0, 0, 0})
			_, _ = io.WriteString(a.Conn, payload)
			if rest := readAll(a.Rest); rest != "" || b.echo.has(payload) {
				b.Errorf("%q, or something was sent", rest)
			}
		}},
		{ID: "BU-6", What: "an unknown capsule, then a datagram", Run: func(b *Bench) {
			a := b.Start(udpSetting()).upgrade("udp.test")
			_, _ = a.Conn.Write([]byte{0x29, 3, 'x', 'y', 'z', 0, 3, 7, 'n', 'o'}) // and a datagram of another context
			a.sends(b, "known", "known")
		}},
		{ID: "BU-7", What: "a datagram of a third party", Run: thirdParty},
		{ID: "BU-8", What: "an address that is encoded twice", Run: udpRefusals(400, "malformed-template", template("%253A%253A1"))},
		{ID: "BU-9", What: "UDP is off", Run: func(b *Bench) {
			x := b.Start(Setting{})
			x.Refused(template("127.0.0.1"), 403, "udp-disabled")
			x.Await("of UDP", func(r Record) bool { return r.Reason == "udp-disabled" && r.Transport == "udp" })
		}},
		{ID: "BU-10", What: "UDP is off, and the request is malformed", Run: func(b *Bench) {
			x := b.Start(Setting{})
			x.Refused(strings.Replace(template("127.0.0.1"), "Connection: Upgrade\r\n", "", 1), 400, "malformed-upgrade")
			x.Refused(strings.Replace(template("127.0.0.1"), "/udp/", "/tcp/", 1), 400, "malformed-template")
		}},
	}
}

func udpSetting() Setting {
	return Setting{Flags: []string{"--udp"}, Allow: rules + "    - {id: udp, name: udp.test, ports: [P], transports: [udp], resolve: [127.0.0.1]}\n"}
}

// template is a whole upgrade.
func template(host string) string {
	return "GET /.well-known/masque/udp/" + host + "/P/ HTTP/1.1\r\nHost: boundary\r\nConnection: Upgrade\r\nUpgrade: connect-udp\r\n\r\n"
}

func udpRefusals(status int, token string, requests ...string) func(*Bench) {
	return func(b *Bench) {
		x := b.Start(udpSetting())
		for _, raw := range requests {
			x.Refused(raw, status, token)
		}
	}
}

// upgrade opens a tunnel of datagrams.
func (x *Boundary) upgrade(host string) *Answer {
	x.b.Helper()
	a := x.Send(template(host))
	if up := a.Fields["upgrade"]; a.Status != 101 || len(up) != 1 || up[0] != "connect-udp" {
		x.b.Fatalf("%s %v, want 101", a.Line, a.Fields)
	}
	return a
}

// sends sends one datagram (RFC 9297, 3.5, of less than 63 bytes) and reads another.
func (a *Answer) sends(b *Bench, text, want string) {
	b.Helper()
	if _, err := a.Conn.Write(append([]byte{0, byte(len(text) + 1), 0}, text...)); err != nil {
		b.Fatalf("send a datagram: %v", err)
	}
	a.datagram(b, want)
}

func (a *Answer) datagram(b *Bench, want string) {
	b.Helper()
	head := make([]byte, 3)
	if _, err := io.ReadFull(a.Rest, head); err != nil || head[0] != 0 || head[2] != 0 || head[1] > 63 {
		b.Fatalf("capsule %x, %v", head, err)
	}
	text := make([]byte, head[1]-1)
	if _, err := io.ReadFull(a.Rest, text); err != nil || string(text) != want {
		b.Fatalf("datagram %q, %v; want %q", text, err, want)
	}
}

func thirdParty(b *Bench) {
	a := b.Start(udpSetting()).upgrade("udp.test")
	a.sends(b, "hello", "hello")
	third, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		b.Fatalf("%v", err)
	}
	defer func() { _ = third.Close() }()
	_, _ = third.WriteToUDPAddrPort(binary.BigEndian.AppendUint32(nil, 0xbadbad), b.echo.last())
	a.sends(b, "again", "again") // the forged one would have come first
}
