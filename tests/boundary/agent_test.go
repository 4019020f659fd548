package boundary

import (
	"bytes"
	"crypto/ed25519"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"
	"golang.org/x/crypto/ssh/knownhosts"

	"skep.dev/skep/internal/testlab"
)

// keyring is the ssh-agent of a person, which counts what it is asked for.
type keyring struct {
	agent.ExtendedAgent
	prints []string // fingerprints of its keys
	socket string

	mu    sync.Mutex
	asked map[string]int
}

func (k *keyring) count(what string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.asked[what]++
}

func (k *keyring) List() ([]*agent.Key, error) { k.count("list"); return k.ExtendedAgent.List() }

func (k *keyring) SignWithFlags(key ssh.PublicKey, data []byte, flags agent.SignatureFlags) (*ssh.Signature, error) {
	k.count("sign " + ssh.FingerprintSHA256(key))
	return k.ExtendedAgent.SignWithFlags(key, data, flags)
}

func (k *keyring) Add(agent.AddedKey) error                 { k.count("add"); return nil }
func (k *keyring) Remove(ssh.PublicKey) error               { k.count("remove"); return nil }
func (k *keyring) RemoveAll() error                         { k.count("remove all"); return nil }
func (k *keyring) Lock([]byte) error                        { k.count("lock"); return nil }
func (k *keyring) Unlock([]byte) error                      { k.count("unlock"); return nil }
func (k *keyring) Extension(string, []byte) ([]byte, error) { k.count("extension"); return nil, nil }

// carry opens a person's ssh-agent with n keys.
func (h *host) carry(n int) *keyring {
	h.t.Helper()
	inner, ok := agent.NewKeyring().(agent.ExtendedAgent)
	if !ok {
		h.t.Fatal("a keyring without extensions")
	}
	k := &keyring{ExtendedAgent: inner, socket: filepath.Join(h.Dir, "agent.sock"), asked: map[string]int{}}
	for i := range n {
		_, private, err := ed25519.GenerateKey(nil)
		if err != nil {
			h.t.Fatal(err)
		}
		if err := inner.Add(agent.AddedKey{PrivateKey: private, Comment: fmt.Sprint("key ", i)}); err != nil {
			h.t.Fatal(err)
		}
		signer, err := ssh.NewSignerFromKey(private)
		if err != nil {
			h.t.Fatal(err)
		}
		k.prints = append(k.prints, ssh.FingerprintSHA256(signer.PublicKey()))
	}
	ln, err := net.Listen("unix", k.socket)
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { _ = ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() { _ = agent.ServeAgent(k, c) }()
		}
	}()
	h.Env = append(h.Env, "SSH_AUTH_SOCK="+k.socket)
	return k
}

// uses is what the last cell's record says of keys: decision, placement and reason.
func (h *host) uses() []string {
	var out []string
	for _, e := range h.all() {
		if e.Kind == "secret.used" {
			out = append(out, fmt.Sprint(e.Body["decision"], " ", e.Body["secret"], " ", e.Body["placement"], " ", e.Body["host"], " ", e.Body["reason"]))
		}
	}
	return out
}

func needs(t *testing.T, programs ...string) {
	t.Helper()
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			t.Skipf("%s is not on this machine", p)
		}
	}
}

// gitServer serves one repository by ssh at public4:22, to the keys.
func gitServer(t *testing.T, h *host, keys ...string) *testlab.SSH {
	t.Helper()
	repository := filepath.Join(h.Dir, "r.git")
	h.Git("clone", "--quiet", "--bare", h.Tree, repository)
	return h.lab.SSH(public4+":22", keys, func(command string) *exec.Cmd {
		if command != "git-upload-pack '/r'" {
			return nil
		}
		return h.lab.Command("git", "-c", "safe.directory=*", "upload-pack", repository)
	})
}

// clone is an unmodified git with an unmodified ssh. That the host's key is new to the cell is ssh's own matter.
const clone = "GIT_SSH_COMMAND='ssh -o StrictHostKeyChecking=accept-new' git ls-remote ssh://git@git.test:22/r"

// TestN11GitOverSSH: git over ssh works by a rule for the name and port and agent_socket,
// with the person's own key, which stays where it is; each signature is in the record.
func TestN11GitOverSSH(t *testing.T) {
	needs(t, "git", "ssh")
	testlab.Test(t, func(t *testing.T, lab *testlab.Lab) {
		lab.Host("git.test", public4)
		h := open(t, lab, "")
		keys := h.carry(2)
		server := gitServer(t, h, keys.prints[1])
		head := strings.TrimSpace(h.Git("rev-parse", "HEAD"))
		lab.KnownHosts(knownhosts.Line([]string{"git.test"}, server.HostKey), knownhosts.Line([]string{"other.test"}, other(t)))
		net := "net: [{name: git.test, ports: [22]}]\n"

		for name, rule := range map[string]string{
			"every key":             "agent_socket: {}\n",
			"one key, for the host": "agent_socket: {keys: [\"" + keys.prints[1] + "\"], hosts: [git.test]}\n",
		} {
			h.Rules(net + rule)
			if got := h.Skep("run", "--yes", "--quiet", "--profile", h.profile, "--", "sh", "-c", clone); !strings.Contains(got, head) {
				t.Errorf("%s: %q", name, got)
			}
			if uses := h.uses(); !slices.ContainsFunc(uses, func(u string) bool {
				return strings.HasPrefix(u, "allow ssh-agent "+keys.prints[1]+" agent_socket: sign") && (name == "every key" || strings.Contains(u, "git.test:22"))
			}) {
				t.Errorf("%s: the record says %q", name, uses)
			}
		}
		if l := server.Logins(); len(l) != 2 || l[0].Key != keys.prints[1] || l[0].User != "git" {
			t.Errorf("the server saw %+v", l)
		}
		signed := keys.asked["sign "+keys.prints[1]]

		// Without the right there is no agent, and with another key or host no signature.
		for name, rule := range map[string]string{
			"no agent_socket": "", "another key": "agent_socket: {keys: [\"" + keys.prints[0] + "\"]}\n",
			"another host": "agent_socket: {keys: [\"" + keys.prints[1] + "\"], hosts: [other.test]}\n",
		} {
			h.Rules(net + rule)
			if r := h.Try("run", "--yes", "--quiet", "--profile", h.profile, "--", "sh", "-c", clone); r.Code == 0 || strings.Contains(r.Out, head) {
				t.Errorf("%s: %+v", name, r)
			}
		}
		if got := keys.asked["sign "+keys.prints[1]]; got != signed || len(server.Logins()) != 2 {
			t.Errorf("%d signatures after %d, %d logins", got, signed, len(server.Logins()))
		}
	})
}

// other is a host's key that nobody serves.
func other(t *testing.T) ssh.PublicKey {
	t.Helper()
	public, _, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	key, err := ssh.NewPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// TestAgentSocketWithoutAnAgent: a run says what is missing before anything starts.
func TestAgentSocketWithoutAnAgent(t *testing.T) {
	testlab.Test(t, func(t *testing.T, lab *testlab.Lab) {
		h := open(t, lab, "agent_socket: {}\n")
		for _, c := range [][2]string{{"LC_ALL=C", "SSH_AUTH_SOCK names none"}, {"SSH_AUTH_SOCK=/nowhere", "none answers at SSH_AUTH_SOCK"}} {
			want := c[1]
			h.Env = append(h.Env, c[0])
			if r := h.Try("run", "--yes", "--profile", h.profile, "--", "true"); r.Code != 125 || !strings.Contains(r.Err, want) {
				t.Errorf("%+v", r)
			}
		}
		h.carry(1)
		h.Rules("agent_socket: {hosts: [git.test]}\n")
		if r := h.Try("run", "--yes", "--profile", h.profile, "--", "true"); r.Code != 125 || !strings.Contains(r.Err, "your ssh knows no key of git.test") {
			t.Errorf("%+v", r)
		}
	})
}

// knockAgent is an attempt at the socket of the agent: raw messages, and what came back.
func (a attempt) knockAgent() (string, error) {
	c, err := net.Dial("unix", os.Getenv("SSH_AUTH_SOCK"))
	if err != nil {
		return "", err
	}
	defer func() { _ = c.Close() }()
	message, err := hex.DecodeString(a.Say)
	if err != nil {
		return "", err
	}
	if a.N > 0 { // of that length, whatever is sent of it
		message = bytes.Repeat([]byte{13}, 64)
	} else {
		a.N = len(message)
	}
	if _, err := c.Write(append(binary.BigEndian.AppendUint32(nil, uint32(a.N)), message...)); err != nil {
		return "", err
	}
	back := make([]byte, 5)
	if _, err := io.ReadFull(c, back); err != nil {
		return "", err
	}
	rest := make([]byte, binary.BigEndian.Uint32(back)-1)
	_, err = io.ReadFull(c, rest)
	return fmt.Sprintf("%d %q", back[4], rest), err
}

// TestAgentSocketLetsTwoRequestsPass is the attack on the relay: whatever a cell sends,
// the person's agent hears of lists and of granted signatures, and of nothing else.
func TestAgentSocketLetsTwoRequestsPass(t *testing.T) {
	testlab.Test(t, func(t *testing.T, lab *testlab.Lab) {
		h := open(t, lab, "")
		keys := h.carry(2)
		h.Rules("agent_socket: {keys: [\"" + keys.prints[0] + "\"]}\n")
		var all []string
		listed, err := keys.ExtendedAgent.List()
		if err != nil {
			t.Fatal(err)
		}
		sign := func(key []byte, flags uint32) string {
			b := append(binary.BigEndian.AppendUint32([]byte{13}, uint32(len(key))), key...)
			b = append(binary.BigEndian.AppendUint32(b, 4), "data"...)
			return string(binary.BigEndian.AppendUint32(b, flags))
		}
		for kind := range 256 {
			if kind == 11 || kind == 13 {
				continue
			}
			all = append(all, string([]byte{byte(kind)}))
			if kind < 40 {
				all = append(all, string([]byte{byte(kind)})+"\x00\x00\x00\x04data\x00\x00\x00\x00")
			}
		}
		all = append(all, "", "\x0b\x00", "\x0d", sign(listed[1].Marshal(), 0), sign(listed[0].Marshal(), 1), sign(listed[0].Marshal(), 0)+"x", sign(nil, 0),
			"\x1b\x00\x00\x00\x18session-bind@openssh.com", "\x1b\x00\x00\x00\x05query")
		var tries []attempt
		for _, m := range all {
			tries = append(tries, attempt{How: "agent", At: fmt.Sprintf("%.12q", m), Say: hex.EncodeToString([]byte(m))})
		}
		tries = append(tries, attempt{How: "agent", N: 32<<10 + 1}, attempt{How: "agent", N: 1<<32 - 1})
		tries = append(tries, attempt{How: "agent", Say: hex.EncodeToString([]byte(sign(listed[0].Marshal(), 0)))}, attempt{How: "agent", Say: "0b"})
		results := h.try(tries...)
		n := len(results)
		for _, r := range results[:n-2] {
			if r.Err == "" && r.Got != `5 ""` {
				t.Errorf("%s: %+v", r.At, r)
			}
		}
		if got := results[n-2].Got; !strings.HasPrefix(got, "14 ") {
			t.Errorf("a granted signature: %+v", results[n-2])
		}
		if got := results[n-1].Got; !strings.HasPrefix(got, "12 ") || !strings.Contains(got, "key 0") || strings.Contains(got, "key 1") {
			t.Errorf("the list: %+v", results[n-1])
		}
		if len(keys.asked) != 2 || keys.asked["list"] != 1 || keys.asked["sign "+keys.prints[0]] != 1 {
			t.Errorf("the agent was asked for %v", keys.asked)
		}
		uses := h.uses()
		for _, want := range []string{"add a key", "remove a key", "remove all keys", "lock the agent", "unlock the agent", "an extension", "a message of more than 32 KiB"} {
			if !slices.ContainsFunc(uses, func(u string) bool { return strings.Contains(u, "block") && strings.Contains(u, "agent_socket: "+want) }) {
				t.Errorf("the record has no refusal of %q: %q", want, uses)
			}
		}
		if len(uses) > 60 {
			t.Errorf("%d records of %d refusals", len(uses), n)
		}
	})
}

// TestAgentSocketIsOneCells: the socket is in the cell that has the right and in no other,
// serves on while Skep is replaced, and ends with its cell.
func TestAgentSocketIsOneCells(t *testing.T) {
	needs(t, "ssh-add", "ssh-keygen")
	testlab.Test(t, func(t *testing.T, lab *testlab.Lab) {
		h := open(t, lab, "")
		keys := h.carry(1)
		h.Rules("agent_socket: {}\n")
		sign := "ssh-add -L >/tmp/k.pub; echo text >/tmp/d; rm -f /tmp/d.sig; ssh-keygen -q -Y sign -f /tmp/k.pub -n file /tmp/d 2>/dev/null </dev/null && echo signed; "
		r := h.beginProgram("sh", "-c", sign+"read go; "+sign+"rm -f /.skep/keys/agent; echo >/.skep/keys/x; ls /.skep/keys")
		if got := r.line(t); got != "signed" {
			t.Fatalf("the cell says %q", got)
		}
		sockets, err := filepath.Glob(filepath.Join(h.Dir, "state/cells/*/layer/keys/agent"))
		if err != nil || len(sockets) != 1 {
			t.Fatalf("the sockets are %v, %v", sockets, err)
		}
		h.Rules("")
		for _, at := range []string{sockets[0], "/.skep/keys/agent", keys.socket} {
			if r := h.try(attempt{How: "unix", At: at})[0]; r.Err != "ENOENT" {
				t.Errorf("another cell, %s: %+v", at, r)
			}
		}
		t.Log(strings.TrimSpace(h.Skep("upgrade")))
		if _, err := fmt.Fprintln(r.in, "go"); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"signed", "agent"} {
			if got := r.line(t); got != want {
				t.Errorf("the cell says %q, not %q", got, want)
			}
		}
		_ = r.cmd.Wait()
		if n := keys.signed(); n != 2 {
			t.Errorf("%d signatures were made", n)
		}
		h.Await("the end of the socket", func() bool { _, err := os.Lstat(sockets[0]); return os.IsNotExist(err) })
	})
}

// signed is how many signatures were made.
func (k *keyring) signed() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.asked["sign "+k.prints[0]]
}

// Await asks again until it holds.
func (h *host) Await(what string, holds func() bool) {
	h.t.Helper()
	for begin := time.Now(); !holds(); <-time.After(20 * time.Millisecond) {
		if time.Since(begin) > 30*time.Second {
			h.t.Fatalf("waited 30 s for %s", what)
		}
	}
}
