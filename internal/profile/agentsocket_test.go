package profile

import (
	"strings"
	"testing"
)

const (
	print1 = "SHA256:sUTfkNiiLieUhlI1zXiy7mfEd6sQX9Mnr3q50k9HOpE"
	print2 = "SHA256:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
)

func mustRead(t *testing.T, text string) *Profile {
	t.Helper()
	p, faults := Parse("/srv/p.yaml", []byte(text))
	if faults != nil {
		t.Fatal(faults)
	}
	return p
}

// TestAgentSocketIsRead: and its canonical text is a profile that says the same.
func TestAgentSocketIsRead(t *testing.T) {
	for text, want := range map[string]string{
		"agent_socket: {}": "agent_socket: {}\n",
		"agent_socket: {keys: [\"" + print1 + "=\", \"" + print2 + "\"], hosts: [B.test, \"a.test:2222\", \"[::1]:22\", 192.0.2.1], ask: false}": "agent_socket: {keys: [\"" + print2 + "\", \"" + print1 + "\"], hosts: [\"192.0.2.1:22\", \"[::1]:22\", \"a.test:2222\", \"b.test:22\"]}\n",
	} {
		p := mustRead(t, text)
		if got := p.Effective(); !strings.Contains(got, want) {
			t.Errorf("%s: %s", text, got)
		}
		if again := mustRead(t, p.Effective()); again.Effective() != p.Effective() || again.Digest() != p.Digest() {
			t.Errorf("%s: read again it is %s", text, again.Effective())
		}
	}
	if p := mustRead(t, "version: v1"); p.Agent.Granted || strings.Contains(p.Effective(), "agent_socket") {
		t.Error("granted by nobody")
	}
}

// TestAgentSocketNarrows: a project's file may only take away.
func TestAgentSocketNarrows(t *testing.T) {
	both := "keys: [\"" + print1 + "\", \"" + print2 + "\"]"
	one := "keys: [\"" + print1 + "\"]"
	for _, c := range []struct {
		base, found string
		wider       bool
	}{
		{"{}", "{}", false}, {"{}", "{" + one + "}", false}, {"{" + both + "}", "{" + one + "}", false}, {"{hosts: [a.test, b.test]}", "{hosts: [a.test]}", false},
		{"{" + one + "}", "{}", true}, {"{" + one + "}", "{" + both + "}", true}, {"{hosts: [a.test]}", "{}", true}, {"{hosts: [a.test]}", "{hosts: [\"a.test:23\"]}", true}, {"", "{}", true},
	} {
		base := "version: v1\n"
		if c.base != "" {
			base += "agent_socket: " + c.base
		}
		got, faults := Narrow(mustRead(t, base), mustRead(t, "agent_socket: "+c.found))
		if (faults != nil) != c.wider {
			t.Errorf("%s under %s: %v", c.found, c.base, faults)
		}
		if !c.wider && got.Agent.String() != mustRead(t, "agent_socket: "+c.found).Agent.String() {
			t.Errorf("%s under %s becomes %s", c.found, c.base, got.Agent)
		}
	}
	kept, faults := Narrow(mustRead(t, "agent_socket: {"+one+"}"), mustRead(t, "version: v1"))
	if faults != nil || !kept.Agent.Granted {
		t.Errorf("what is left out is not the base's: %v", faults)
	}
}
