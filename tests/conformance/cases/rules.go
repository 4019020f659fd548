package cases

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// policies are about what a policy says, and about addresses that it cannot open.
func policies() []Case {
	return []Case{
		{ID: "BC-43", What: "what is no rule is a load error with its line", Run: noRules},
		{ID: "BC-44", What: "methods and paths, on the second request of a connection too", Run: methods},
		{ID: "BC-45", What: "the ceiling, and a mail port in a range", Run: ceiling},
		{ID: "BX-5", What: "a second answer that differs is not asked for", Run: once},
		{ID: "BX-6", What: "three kept addresses, of which two are dead", Run: third},
		{ID: "BX-8", What: "the host's own address", Run: own},
	}
}

func noRules(b *Bench) {
	for _, rule := range []string{
		`{name: "a.*", ports: [P]}`, `{name: "x*", ports: [P]}`, `""`, `{}`, `{suffix: ok.test, ports: [P]}`, `{name: 127.0.0.1, ports: [P]}`, `{ip: 100.64.0.1, ports: [P]}`,
		`{name: ok.test, ports: [443], paths: ["/a"]}`, `{name: ok.test, nonsense: 1}`,
	} {
		if said := b.Refuses(Setting{Allow: "    - " + rule + "\n"}); !strings.Contains(said, "bundle.yaml:5:") || strings.Count(strings.TrimSpace(said), "\n") > 3 {
			b.Errorf("%s: %s, want a fault with its line and what to do", rule, said)
		}
	}
	bundle := filepath.Join(b.Dir, "v9.yaml")
	if err := os.WriteFile(bundle, []byte("version: v9\nagent: {id: cell.example}\n"), 0o600); err != nil {
		b.Fatalf("%v", err)
	}
	if said := b.Refuses(Setting{Flags: []string{"--bundle", bundle}}); !strings.Contains(said, "v9.yaml:1:") {
		b.Errorf("an unknown version: %s", said)
	}
}

func methods(b *Bench) {
	x := b.Start(Setting{Allow: "    - {name: ok.test, ports: [P], resolve: [127.0.0.1], http: true, methods: [GET], paths: [\"/repos/*\"]}\n"})
	for second, want := range map[string]string{
		"DELETE /repos/a": "403 method-not-allowed", "GET /private": "403 path-not-allowed", "GET /repos/../private": "400 path-ambiguous",
		"GET /repos/%2e%2e/private": "400 path-ambiguous", "GET /repos/a%2fb": "400 path-ambiguous",
	} {
		a := x.Opens(get("ok.test:P"))
		a.Echoes(b, b.with("GET /repos/first HTTP/1.1\r\nHost: ok.test:P\r\n\r\n"))
		_, _ = io.WriteString(a.Conn, b.with(second+" HTTP/1.1\r\nHost: ok.test:P\r\n\r\n"))
		status, token, _ := strings.Cut(want, " ")
		if got := readAll(a.Rest); !strings.HasPrefix(got, "HTTP/1.1 "+status+" ") || strings.Count(got, "Proxy-Status:") != 1 || !strings.Contains(got, "reason="+token) {
			b.Errorf("%s: %q, want %s", second, got, want)
		}
		x.Await("of "+second, func(r Record) bool { return r.Reason == token })
		if _, path, _ := strings.Cut(second, " "); path != "/repos/a" && b.echo.has(path+" HTTP") || b.echo.has("DELETE") {
			b.Errorf("%s went upstream", second)
		}
	}
}

func ceiling(b *Bench) {
	of := func(text string) Setting {
		file := filepath.Join(b.Dir, "ceiling.yaml")
		if err := os.WriteFile(file, []byte(b.with(text)), 0o600); err != nil {
			b.Fatalf("%v", err)
		}
		return Setting{Flags: []string{"--ceiling", file}}
	}
	x := b.Start(of("open: [{cidr: 127.0.0.0/8}]\ndeny:\n  - {name: ok.test, ports: [P]}\n"))
	x.Refused(get("ok.test:P"), 403, "not-on-allowlist")
	x.Opens(get("127.0.0.1:P")).Echoes(b, "x")
	mail := of("open: [{cidr: 127.0.0.0/8, ports: [587]}]\n")
	mail.Allow = "    - {name: ok.test, ports: [1-1000], resolve: [127.0.0.1]}\n    - {name: mail.test, ports: [587], resolve: [127.0.0.1]}\n"
	y := b.Start(mail)
	y.Refused(get("ok.test:587"), 403, "port-not-allowed")
	l, err := net.Listen("tcp", "127.0.0.1:587")
	if err != nil {
		b.Skipf("no mail port can be listened at: %v", err)
	}
	defer func() { _ = l.Close() }()
	y.Opens(get("mail.test:587"))
}

func once(b *Bench) {
	allow := b.resolving("    - {name: turns.test, ports: [P]}\n", "turns.test")
	if b.Asked == nil {
		b.Skipf("nobody counts the questions here")
	}
	x := b.Start(Setting{Allow: allow})
	before := b.Asked("turns.test")
	x.Opens(get("turns.test:P")).Echoes(b, "x")
	b.Host("turns.test", "127.0.0.2")
	if n := b.Asked("turns.test") - before; n > 2 { // one for each family
		b.Errorf("the name was asked for %d times for one request", n)
	}
	x.Await("of the first answer", func(r Record) bool { return r.Kind == "intent" && r.Destination == b.with("turns.test:P") })
}

func third(b *Bench) {
	allow := b.resolving("    - {ip: 127.0.0.3, ports: [P]}\n    - {ip: 127.0.0.4, ports: [P]}\n    - {name: three.test, ports: [P]}\n", "three.test")
	b.Host("three.test", "127.0.0.3", "127.0.0.4", "127.0.0.1")
	x := b.Start(Setting{Allow: allow})
	before := 0
	if b.Asked != nil {
		before = b.Asked("three.test")
	}
	a := x.Opens(get("three.test:P"))
	a.Echoes(b, "x")
	_ = a.Conn.Close()
	x.Await("of the living one", func(r Record) bool { return r.Kind == "outcome" && r.Address == b.with("127.0.0.1:P") })
	if b.Asked != nil && b.Asked("three.test")-before > 2 {
		b.Errorf("a dead address was answered by another question")
	}
}

// own asks for an address of this host's own that is no loopback.
func own(b *Bench) {
	all, err := net.InterfaceAddrs()
	if err != nil {
		b.Fatalf("%v", err)
	}
	i := slices.IndexFunc(all, func(a net.Addr) bool {
		n, ok := a.(*net.IPNet)
		return ok && n.IP.To4() != nil && n.IP.IsGlobalUnicast()
	})
	if i < 0 {
		b.Skipf("this host has no address but loopback")
	}
	ip := all[i].(*net.IPNet).IP.String()
	x := b.Start(Setting{Allow: fmt.Sprintf("    - {ip: %s, ports: [P]}\n    - {cidr: %[1]s/32, ports: [P]}\n    - {name: own.test, ports: [P], resolve: [%[1]s]}\n", ip)})
	x.Refused(get(ip+":P"), 403, "ip-not-on-allowlist")
	x.Refused(get("own.test:P"), 403, "resolved-address-denied")
}
