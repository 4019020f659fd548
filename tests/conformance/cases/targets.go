package cases

import (
	"fmt"
	"strings"
)

// targets are about what is asked for, and what policy says to it.
func targets() []Case {
	return []Case{
		{ID: "BC-15", What: "an unlisted literal, with payload", Run: refusals(403, "ip-not-on-allowlist", get("127.0.0.2:P"))},
		{ID: "BC-16", What: "another port", Run: refusals(403, "port-not-allowed", get("127.0.0.1:9"), get("ok.test:9"))},
		{ID: "BC-17", What: "IPv6 in brackets, with and without its rule", Run: six},
		{ID: "BC-18", What: "an IPv4-mapped literal is IPv4", Run: func(b *Bench) {
			x := b.Start(Setting{})
			x.Opens(get("[::ffff:127.0.0.1]:P")).Echoes(b, "x")
			x.Await("as IPv4", func(r Record) bool { return r.Destination == b.with("127.0.0.1:P") })
		}},
		{ID: "BC-19", What: "a scoped literal", Run: refusals(403, "scoped-ip", get("[fe80::1%25eth0]:P"))},
		{ID: "BC-20", What: "a name, recorded with the address that was dialed", Run: func(b *Bench) {
			x := b.Start(Setting{})
			a := x.Opens(get("ok.test:P"))
			a.Echoes(b, "x")
			_ = a.Conn.Close()
			x.Await("with both", func(r Record) bool { return r.Destination == b.with("ok.test:P") && r.Address == b.with("127.0.0.1:P") })
		}},
		{ID: "BC-21", What: "an unlisted name is not resolved", Run: unlisted},
		{ID: "BC-22", What: "two spellings of one name", Run: func(b *Bench) {
			b.Start(Setting{}).Opens("CONNECT OK.TEST.:P HTTP/1.1\r\nHost: ok.test:P\r\n\r\n").Echoes(b, "x")
		}},
		{ID: "BC-23", What: "A-label and U-label are one name", Run: labels},
		{ID: "BC-24", What: "a suffix is every depth below, and never itself", Run: suffix},
		{ID: "BC-25", What: "a suffix of one label", Run: depth},
		{ID: "BC-26", What: "`*` is every name, no literal, and not ours", Run: anyName},
	}
}

func six(b *Bench) {
	x := b.Start(Setting{})
	x.Opens(get("[::1]:P")).Echoes(b, "x")
	x.Await("in brackets", func(r Record) bool { return r.Destination == b.with("[::1]:P") })
	b.Start(Setting{Allow: "    - {ip: 127.0.0.1, ports: [P]}\n"}).Refused(get("[::1]:P"), 403, "ip-not-on-allowlist")
}

func unlisted(b *Bench) {
	x := b.Start(Setting{})
	a := x.Refused(get("unlisted.test:P"), 403, "not-on-allowlist")
	if why := a.Fields["boundary-reason"]; len(why) != 1 || why[0] != "not allowed by policy" {
		b.Errorf("Boundary-Reason %q", why)
	}
	if b.Asked != nil && b.Asked("unlisted.test") != 0 {
		b.Errorf("the name was asked for")
	}
}

// resolving makes names resolve to loopback, and gives rules under which that may be dialed.
func (b *Bench) resolving(allow string, names ...string) string {
	b.Helper()
	if b.Host == nil {
		b.Skipf("no name can be made to resolve here")
	}
	for _, n := range names {
		b.Host(n, "127.0.0.1")
	}
	return "    - {id: ip4, ip: 127.0.0.1, ports: [P]}\n" + allow
}

func labels(b *Bench) {
	x := b.Start(Setting{Allow: b.resolving(`    - {suffix: "*.s.test", ports: [P]}`+"\n", "xn--bcher-kva.s.test")})
	for _, host := range []string{"xn--bcher-kva.s.test", "bücher.s.test", "BÜCHER.S.TEST"} {
		x.Opens(get(host+":P")).Echoes(b, "x")
	}
	for _, r := range x.Records() {
		if r.Destination != "" && r.Destination != b.with("xn--bcher-kva.s.test:P") {
			b.Errorf("%+v", r)
		}
	}
}

func suffix(b *Bench) {
	x := b.Start(Setting{Allow: b.resolving(`    - {id: below, suffix: "*.s.test", ports: [P]}`+"\n", "a.s.test", "a.b.s.test")})
	for _, host := range []string{"a.s.test", "a.b.s.test"} {
		x.Opens(get(host+":P")).Echoes(b, "x")
		x.Await("with the rule", func(r Record) bool { return r.Destination == b.with(host+":P") && r.Rule == "below" })
	}
	for _, host := range []string{"s.test", "evils.test"} {
		x.Refused(get(host+":P"), 403, "not-on-allowlist")
	}
}

func depth(b *Bench) {
	x := b.Start(Setting{Allow: b.resolving(`    - {suffix: "*.s.test", depth: 1, ports: [P]}`+"\n", "a.s.test", "a.b.s.test")})
	x.Opens(get("a.s.test:P")).Echoes(b, "x")
	x.Refused(get("a.b.s.test:P"), 403, "not-on-allowlist")
}

func anyName(b *Bench) {
	x := b.Start(Setting{Allow: b.resolving(`    - {name: "*", ports: [P]}`+"\n", "some.test")})
	x.Opens(get("some.test:P")).Echoes(b, "x")
	x.Refused(get("127.0.0.2:P"), 403, "ip-not-on-allowlist")
	x.Refused(get("x.alt:P"), 403, "not-on-allowlist")
}

// destinations are about what is reached.
func destinations() []Case {
	return []Case{
		{ID: "BC-27", What: "an allowed name that does not exist", Run: func(b *Bench) {
			x := b.Start(Setting{Allow: "    - {name: gone.test, ports: [P]}\n"})
			x.Refused(get("gone.test:P"), 502, "resolve-failed")
			x.Await("that failed", func(r Record) bool { return r.Reason == "resolve-failed" && r.Decision == "fail" })
		}},
		{ID: "BC-28", What: "an allowed name, and nobody listens", Run: closed},
		{ID: "BC-29", What: "a nested CONNECT is payload", Run: func(b *Bench) {
			b.Start(Setting{}).Opens(get("127.0.0.1:P")).Echoes(b, get("other.test:443"))
		}},
		{ID: "BC-30", What: "forged identity changes nothing, and is not forwarded", Run: forged},
		{ID: "BC-39", What: "a second record with exact bytes; an idle flow is closed", Run: ends},
	}
}

func closed(b *Bench) {
	at := b.freePort()
	port := at[strings.LastIndex(at, ":")+1:]
	x := b.Start(Setting{Allow: fmt.Sprintf("    - {name: ok.test, ports: [%s], resolve: [127.0.0.1]}\n", port)})
	a := x.Refused(get("ok.test:"+port), 502, "dial-failed")
	if proxy := a.Fields["proxy-status"]; len(proxy) != 1 || !strings.Contains(proxy[0], "error=connection_refused;") {
		b.Errorf("Proxy-Status %q", proxy)
	}
}

func forged(b *Bench) {
	x := b.Start(Setting{})
	lies := "Sandbox-Id: forged-1\r\nX-Skep-Agent: forged-2\r\nProxy-Authorization: Basic Zm9yZ2VkLTM=\r\nForwarded: for=forged-4\r\n"
	x.Opens("CONNECT ok.test:P HTTP/1.1\r\nHost: ok.test:P\r\n"+lies+"\r\n").Echoes(b, "x")
	for _, lie := range []string{"forged", "Zm9yZ2VkLTM", "Sandbox-Id"} {
		if b.echo.has(lie) {
			b.Errorf("%s was forwarded", lie)
		}
	}
	r := x.Await("of the flow", func(r Record) bool { return r.Kind == "intent" })
	if r.Agent != "cell.example" || r.Sandbox != "cell.example" {
		b.Errorf("%+v", r)
	}
	x.Refused("CONNECT no.test:P HTTP/1.1\r\nHost: no.test:P\r\n"+lies+"\r\n", 403, "not-on-allowlist")
}

func ends(b *Bench) {
	x := b.Start(Setting{Flags: []string{"--idle-time", "1s"}})
	a := x.Opens(get("127.0.0.1:P"))
	a.Echoes(b, strings.Repeat("x", 12_345))
	_ = a.Conn.Close()
	x.Await("with the bytes", func(r Record) bool {
		return r.Kind == "outcome" && r.Bytes.Up == 12_345 && r.Bytes.Down == 12_345 && r.Reason == ""
	})
	idle := x.Opens(get("127.0.0.1:P"))
	idle.Echoes(b, "y")
	if rest := readAll(idle.Rest); rest != "" {
		b.Errorf("%q at the end of an idle flow", rest)
	}
	x.Await("that was idle", func(r Record) bool { return r.Reason == "idle-timeout" && r.Bytes.Up == 1 })
}
