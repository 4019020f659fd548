package refused

import (
	"strings"
	"testing"

	"skep.dev/skep/internal/ledger/entry"
	"skep.dev/skep/internal/ledger/kind"
)

func add(t *testing.T, l *List, bodies ...kind.Body) {
	t.Helper()
	for _, b := range bodies {
		raw, err := kind.Append(nil, b)
		if err != nil {
			t.Fatal(err)
		}
		l.Add(&entry.Entry{Kind: b.Kind(), Body: raw})
	}
}

// B89: each refusal with its reason, once, with what would allow it; what opened, or only
// ended, is none. What a cell wrote is escaped, and no part of a profile.
func TestRefusals(t *testing.T) {
	var l List
	denied := kind.FlowDenied{Destination: "api.test", Port: 443, Transport: "tcp", Reason: "not-on-allowlist", AllowWith: "- {name: api.test}", Count: 2}
	add(t, &l, &denied, &denied,
		&kind.FlowIntent{Destination: "ok.test", Port: 443, Transport: "tcp", Decision: "allow"},
		&kind.FlowOutcome{Destination: "ok.test", Port: 443, Transport: "tcp", Decision: "allow"},
		&kind.FlowOutcome{Destination: "long.test", Port: 443, Transport: "tcp", Reason: "revoked"},
		&kind.FlowOutcome{Destination: "late.test", Port: 443, Transport: "tcp", Reason: "resolve-failed"},
		&kind.FlowDenied{Destination: "host.test", Port: 80, Transport: "tcp", Reason: "not-on-allowlist", AllowWith: "not permitted by the operator"},
		&kind.FlowDenied{Destination: "evil\x1b[31m", Port: 1, Transport: "tcp", Reason: "x", AllowWith: "- {name: \"a\nb\"}"},
		&kind.FlowDenied{Destination: "2001:db8::1", Port: 25, Transport: "udp", Reason: "ip-not-on-allowlist", AllowWith: "- {ip: \"2001:db8::1\", ports: [25]}"},
	)
	lines, more := l.Lines(0)
	text := strings.Join(lines, "\n")
	for _, want := range []string{
		"refused: api.test:443 by tcp (not-on-allowlist), 4 times\n    allow with: - {name: api.test}", "refused: late.test:443 by tcp (resolve-failed)\n    allow with: a name that",
		"    allow with: not permitted by the operator", "refused: [2001:db8::1]:25 by udp (ip-not-on-allowlist)",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	if more != 0 || strings.Contains(text, "ok.test") || strings.Contains(text, "long.test") || strings.ContainsRune(text, 0x1b) || len(l.All()) != 5 {
		t.Errorf("%d more; %s", more, text)
	}
	if got := l.Rules(); len(got) != 2 || got[0] != "- {ip: \"2001:db8::1\", ports: [25]}" || got[1] != "- {name: api.test}" {
		t.Errorf("%q", got)
	}
	if lines, more := l.Lines(1); len(lines) != 2 || more != 4 {
		t.Errorf("%q, %d", lines, more)
	}
}
