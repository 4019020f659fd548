package start

import (
	"errors"
	"fmt"
	"io"

	"skep.dev/skep/guest/agent"
	"skep.dev/skep/guest/setup"
)

// check tests the preconditions, one line each, and starts nothing (G4).
func check(s settings, out io.Writer) (int, error) {
	if s.statement {
		_, err := io.WriteString(out, statement)
		return 0, err
	}
	status := 0
	for _, step := range []struct {
		what string
		try  func() error
	}{
		{"no way out but lo", setup.NoForeign},
		{"tun device", setup.TryTun},
		{"boundary", func() error { return answers(s.boundary, s.ready) }},
	} {
		said := "ok"
		if err := step.try(); err != nil {
			status, said = agent.SetupFailed, sentence(err)
		}
		if _, err := fmt.Fprintf(out, "%s: %s\n", step.what, said); err != nil {
			return agent.SetupFailed, err
		}
	}
	return status, nil
}

func sentence(err error) string {
	var f *setup.Fault
	if errors.As(err, &f) {
		return f.Sentence
	}
	return err.Error()
}

// statement is the compatibility statement of this route (G56).
const statement = `transports: tcp; udp with --udp, by connect-udp; nothing else is answered
records: A and AAAA for every valid name, one synthetic address each; all other types empty
pools: 100.64.0.0/10 and 100::/64; resolver 100.127.255.253; nothing of 100.127.255.0/24 and 100::ffff:ffff:ffff:ff00/120 is handed out
capacity: 65,536 names in each family, 500 queries a second, 1,024 attempts at once, 256 udp flows
reuse: no address serves a second name
mtu: 65520
a denial: a reset on the SYN (ECONNREFUSED), no byte readable; within 100 ms over a Unix socket, 200 ms over vsock, plus the boundary's own time
`
