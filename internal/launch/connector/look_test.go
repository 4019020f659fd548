package connector

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func looks(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out, complaint bytes.Buffer
	err := Run(args, &out, &complaint)
	return out.String(), err
}

func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestExplain(t *testing.T) {
	b := file(t, "version: v1\nagent: {id: a.example, external_id: x}\negress: {allow: ['*.b.example', {ip: 192.0.2.1, ports: [53], transports: [udp]}]}\n")
	got, err := looks(t, "explain", "--bundle", b, "--ceiling", file(t, "deny: [{name: c.example}]\n"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"agent a.example\n", `external_id "x"`, "allows every name below b.example, never b.example itself\n    line 3: suffix=*.b.example ports=1-24,",
		"allows the literal address 192.0.2.1, never a name\n    line 3: ip=192.0.2.1 ports=53 transports=udp", "never, by the ceiling, the name c.example only", "warning: line 3:",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in\n%s", want, got)
		}
	}
	if got, err := looks(t, "explain", "--bundle", file(t, "version: v1\nagent: {id: a.example}\n")); err != nil || !strings.Contains(got, "allows nothing") {
		t.Errorf("%s, %v", got, err)
	}
	for _, bad := range [][]string{{"explain"}, {"explain", "--bundle", "/none"}, {"explain", "--bundle", file(t, "x: 1")}, {"explain", "--bundle", b, "more"}, {"denials"}, {"limits", "more"}} {
		if _, err := looks(t, bad...); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
	if got, err := looks(t, "limits"); err != nil || !strings.Contains(got, "| tunnel head; fields; time | 64 KiB; 128; 15s |") {
		t.Errorf("%s, %v", got, err)
	}
}

// Each refused destination once, and nothing that is no rule, whatever a record says.
func TestDenials(t *testing.T) {
	got, err := looks(t, "denials", "--records", file(t, strings.Join([]string{
		`{"kind":"denied","allow_with":"- {name: b.example, ports: [8080]}"}`, `{"kind":"denied","allow_with":"- {name: a.example}"}`,
		`{"kind":"denied","allow_with":"- {name: b.example, ports: [8080]}"}`, `{"kind":"denied","allow_with":"not permitted by the operator"}`,
		`{"kind":"denied","allow_with":"- {name: \"*\"}\n- {cidr: 0.0.0.0/0}"}`, `{"kind":"denied","allow_with":"- {nonsense: \u001b[31m}"}`,
		`{"kind":"intent","allow_with":"- {name: c.example}"}`, `half a li`,
	}, "\n")))
	if want := "- {name: a.example}\n- {name: b.example, ports: [8080]}\n"; err != nil || got != want {
		t.Errorf("%q, %v", got, err)
	}
}
