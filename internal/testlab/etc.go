package testlab

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"skep.dev/skep/internal/sys"
)

// etcVariable tells the tests that /etc/skep is the lab's.
const etcVariable = "SKEP_TESTLAB_ETC"

// operatorDir is where an operator's files stand, on a host and in a lab.
const operatorDir = "/etc/skep"

// ownEtc lays a directory for the operator's files over the host's /etc, which
// stays as it is. It lives in memory and goes with the namespace.
func ownEtc(dir string) error {
	over := filepath.Join(dir, "etc")
	if err := os.Mkdir(over, 0o755); err != nil {
		return fmt.Errorf("make the lab's /etc: %w", err)
	}
	if err := sys.MountTmpfs(over); err != nil {
		return err
	}
	upper, work := filepath.Join(over, "upper"), filepath.Join(over, "work")
	for _, d := range []string{work, filepath.Join(upper, filepath.Base(operatorDir)), filepath.Join(upper, "ssh")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return fmt.Errorf("make the lab's /etc: %w", err)
		}
	}
	return sys.MountOverlay("/etc", "/etc", upper, work)
}

// Ceiling is the operator's ceiling.yaml in this lab, until the test ends. A
// ceiling that opens the floor lets a cell reach what the host's loopback serves.
// The test is skipped where the lab can have no /etc of its own.
func (l *Lab) Ceiling(text string) {
	l.t.Helper()
	l.etc(filepath.Join(operatorDir, "ceiling.yaml"), text)
}

// KnownHosts is whom the host's ssh clients trust, until the test ends.
func (l *Lab) KnownHosts(lines ...string) {
	l.t.Helper()
	l.etc("/etc/ssh/ssh_known_hosts", strings.Join(lines, "\n")+"\n")
}

func (l *Lab) etc(file, text string) {
	l.t.Helper()
	if os.Getenv(etcVariable) != "" {
		l.t.Skipf("the lab has the host's /etc: %s", os.Getenv(etcVariable))
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { _ = os.Remove(file) })
}
