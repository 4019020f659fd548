package keys

import (
	"errors"
	"strings"
	"testing"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/internal/ledger/kind"
	"skep.dev/skep/internal/profile"
	"skep.dev/skep/internal/sshagent"
	"skep.dev/skep/internal/sys"
)

// TestPage: a host without a known key is an error, and a key that came for no host of the page grants nothing.
func TestPage(t *testing.T) {
	p := &profile.Profile{File: "x.yaml", Agent: profile.AgentSocket{Granted: true, Hosts: []string{"git.test:22"}}}
	known := []*skepv1.HostKey{{Host: "git.test:22", Key: []byte("k")}, {Host: "other.test:22", Key: []byte("o")}}
	page, err := Page(p, known)
	if err != nil || !page.Bound || len(page.Hosts) != 1 || string(page.Hosts[0].Blob) != "k" {
		t.Errorf("%+v, %v", page, err)
	}
	for _, known := range [][]*skepv1.HostKey{nil, known[1:], {{Host: "git.test:22"}}} {
		if _, err := Page(p, known); err == nil || !strings.Contains(err.Error(), "your ssh knows no key of git.test,") {
			t.Errorf("%v: %v", known, err)
		}
	}
	if page, err := Page(&profile.Profile{}, known); err != nil || page.Bound || len(page.Hosts) != 0 {
		t.Errorf("without hosts: %+v, %v", page, err)
	}
}

// TestJudge: what a relay asks for is judged again, and granted only once it is recorded.
func TestJudge(t *testing.T) {
	key := sshagent.Fingerprint([]byte("k"))
	page := &sshagent.Page{Keys: []string{key}, Bound: true, Hosts: []sshagent.HostKey{{Host: "git.test:22"}}}
	var recorded *kind.SecretUsed
	var fails error
	r := &Relay{page: page, record: func(b kind.Body) error { recorded = b.(*kind.SecretUsed); return fails }}
	good := `{"key":"` + key + `","host":"git.test:22","did":"sign"}`
	if r.judge([]byte(good)) != 'y' || recorded.Decision != "allow" || recorded.Secret != "ssh-agent "+key || string(recorded.Host) != "git.test:22" {
		t.Errorf("%+v", recorded)
	}
	for _, bad := range []string{
		"", "{", `{"did":"sign"}`, `{"key":"SHA256:other","host":"git.test:22","did":"sign"}`, `{"key":"` + key + `","host":"x:22","did":"sign"}`,
		`{"key":"` + key + `","did":"sign"}`, `{"did":"add a key","reason":"operation-not-granted","count":3}`,
	} {
		recorded = nil
		if r.judge([]byte(bad)) != 'n' || recorded != nil && recorded.Decision != "block" {
			t.Errorf("%s: %+v", bad, recorded)
		}
	}
	if recorded.Placement != "agent_socket: add a key, 3 times" {
		t.Errorf("%+v", recorded)
	}
	fails = errors.New("full")
	if r.judge([]byte(good)) != 'n' {
		t.Error("granted without a record")
	}
}

func TestCheck(t *testing.T) {
	a, b, err := sys.StreamPair()
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	defer a.Close()
	c, d, err := sys.SeqpacketPair()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	defer d.Close()
	file, err := sys.SealedFile("x", []byte("x"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := Check(a); err != nil {
		t.Error(err)
	}
	if Check(file) == nil || Check(c) == nil {
		t.Error("a file, or a socket of messages, is taken for an ssh-agent")
	}
}
