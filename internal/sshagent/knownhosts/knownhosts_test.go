package knownhosts

import (
	"crypto/ed25519"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
)

func key(t *testing.T) ssh.PublicKey {
	t.Helper()
	public, _, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	k, err := ssh.NewPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestKeys(t *testing.T) {
	k, other := key(t), key(t)
	text := strings.TrimSuffix(string(ssh.MarshalAuthorizedKey(k)), "\n")
	for name, c := range map[string]struct {
		line  string
		knows bool
	}{
		"plain":             {"git.test " + text, true},
		"case":              {"Git.Test " + text, true},
		"with a comment":    {"git.test " + text + " me@home", true},
		"in a list":         {"a.test,git.test,192.0.2.1 " + text, true},
		"by a pattern":      {"*.test " + text, true},
		"but not this":      {"*.test,!git.test " + text, false},
		"one character":     {"gi?.test " + text, true},
		"hashed":            {knownhosts.HashHostname("git.test") + " " + text, true},
		"hashed, another":   {knownhosts.HashHostname("hub.test") + " " + text, false},
		"hashed, broken":    {"|1|x|y " + text, false},
		"another":           {"hub.test " + text, false},
		"another port":      {"[git.test]:2222 " + text, false},
		"an authority":      {"@cert-authority git.test " + text, false},
		"a comment":         {"# git.test " + text, false},
		"no key":            {"git.test ssh-ed25519", false},
		"no base64":         {"git.test ssh-ed25519 %%%", false},
		"revoked elsewhere": {"git.test " + text + "\n@revoked * " + text, false},
		"another revoked":   {"git.test " + text + "\n@revoked * " + string(ssh.MarshalAuthorizedKey(other)), true},
	} {
		got := Keys("git.test", []byte(c.line))
		if (len(got) == 1 && string(got[0]) == string(k.Marshal())) != c.knows {
			t.Errorf("%s: %d keys", name, len(got))
		}
	}
	if got := Keys(Name("git.test", "2222"), []byte("[git.test]:2222 "+text)); len(got) != 1 {
		t.Error("a port of its own is not found")
	}
	if got := Keys("git.test", []byte(strings.Repeat("git.test "+text+"\n", 100))); len(got) != MaxKeys {
		t.Errorf("%d keys are kept", len(got))
	}
}
