package relay

import (
	"encoding/binary"
	"encoding/json"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"skep.dev/skep/internal/sshagent"
	"skep.dev/skep/internal/sys"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bench is a relay between a fake skepd and a fake agent.
type bench struct {
	t      *testing.T
	path   string
	skepd  *os.File
	agent  net.Conn
	served chan error

	mu     sync.Mutex
	uses   []sshagent.Use
	asked  [][]byte
	answer func([]byte) []byte // of the agent; nil: it is silent
	grant  bool
}

func begin(t *testing.T, page sshagent.Page) *bench {
	t.Helper()
	b := &bench{t: t, path: filepath.Join(t.TempDir(), "a"), served: make(chan error, 1), grant: true}
	b.answer = func(m []byte) []byte {
		if m[0] == 11 {
			return []byte{12, 0, 0, 0, 0}
		}
		return []byte{14, 0, 0, 0, 1, 9}
	}
	ours, theirs, err := sys.SeqpacketPair()
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(page)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ours.Write(text); err != nil {
		t.Fatal(err)
	}
	agentEnd, agentOther, err := sys.StreamPair()
	if err != nil {
		t.Fatal(err)
	}
	if b.agent, err = net.FileConn(agentOther); err != nil {
		t.Fatal(err)
	}
	_ = agentOther.Close()
	agent, err := sys.Pollable(agentEnd)
	if err != nil {
		t.Fatal(err)
	}
	r, err := New(theirs, agent)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := sys.ListenUnix(b.path, sys.Stream)
	if err != nil {
		t.Fatal(err)
	}
	b.skepd = ours
	go func() { b.served <- r.Serve(listener) }()
	var ends sync.WaitGroup
	ends.Go(b.recordUses)
	ends.Go(b.beAgent)
	t.Cleanup(func() {
		_ = ours.Close()
		if err := <-b.served; err != nil {
			t.Error(err)
		}
		_ = b.agent.Close()
		_ = agent.Close()
		_ = theirs.Close()
		ends.Wait()
	})
	return b
}

func (b *bench) recordUses() {
	buf := make([]byte, sshagent.MaxUse)
	for {
		n, err := b.skepd.Read(buf)
		if err != nil {
			return
		}
		var u sshagent.Use
		if json.Unmarshal(buf[:n], &u) != nil {
			return
		}
		b.mu.Lock()
		b.uses = append(b.uses, u)
		a := sshagent.Granted
		if !b.grant || u.Reason != "" {
			a = sshagent.Denied
		}
		b.mu.Unlock()
		if _, err := b.skepd.Write([]byte{a}); err != nil {
			return
		}
	}
}

func (b *bench) beAgent() {
	for {
		m, err := message(b.agent, 1<<20)
		if err != nil {
			return
		}
		b.mu.Lock()
		b.asked = append(b.asked, m)
		answer := b.answer
		b.mu.Unlock()
		if answer == nil {
			_ = b.agent.Close()
			return
		}
		if send(b.agent, answer(m)) != nil {
			return
		}
	}
}

// seen is what skepd and the agent heard.
func (b *bench) seen() (uses []sshagent.Use, asked [][]byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append(uses, b.uses...), append(asked, b.asked...)
}

func (b *bench) dial() net.Conn {
	b.t.Helper()
	c, err := net.Dial("unix", b.path)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	return c
}

func say(t *testing.T, c net.Conn, m []byte) byte {
	t.Helper()
	if err := send(c, m); err != nil {
		t.Fatal(err)
	}
	back, err := message(c, 1<<20)
	if err != nil || len(back) == 0 {
		t.Fatal(err)
	}
	return back[0]
}

func signs(key string) []byte {
	b := append(binary.BigEndian.AppendUint32([]byte{13}, uint32(len(key))), key...)
	return append(b, 0, 0, 0, 1, 'x', 0, 0, 0, 0)
}

// TestRecordedFirst: the agent signs only what skepd has recorded and granted.
func TestRecordedFirst(t *testing.T) {
	b := begin(t, sshagent.Page{})
	c := b.dial()
	if got := say(t, c, signs("k")); got != 14 {
		t.Fatalf("answered %d", got)
	}
	uses, asked := b.seen()
	if len(uses) != 1 || uses[0].Key != sshagent.Fingerprint([]byte("k")) || uses[0].Reason != "" || len(asked) != 1 {
		t.Fatalf("%+v, %q", uses, asked)
	}
	b.mu.Lock()
	b.grant = false
	b.mu.Unlock()
	if got := say(t, c, signs("k")); got != 5 {
		t.Errorf("not granted, answered %d", got)
	}
	if _, asked := b.seen(); len(asked) != 1 {
		t.Errorf("the agent was asked for %q", asked[1:])
	}
}

// TestRefusalsAreCounted: one record for each kind, and then a count.
func TestRefusalsAreCounted(t *testing.T) {
	b := begin(t, sshagent.Page{Keys: []string{"SHA256:none"}})
	c := b.dial()
	for range 30 {
		for _, m := range [][]byte{{19}, signs("k")} {
			if got := say(t, c, m); got != 5 {
				t.Fatalf("answered %d", got)
			}
		}
	}
	uses, asked := b.seen()
	if len(uses) != 2 || len(asked) != 0 {
		t.Errorf("%d records, %q went on", len(uses), asked)
	}
}

// TestBadMessagesEndTheConnection and nothing else.
func TestBadMessagesEndTheConnection(t *testing.T) {
	b := begin(t, sshagent.Page{})
	for _, raw := range [][]byte{{255, 255, 255, 255}, binary.BigEndian.AppendUint32(nil, sshagent.MaxRequest+1)} {
		c := b.dial()
		if _, err := c.Write(raw); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(make([]byte, 1)); err == nil {
			t.Error("a message without end is answered")
		}
	}
	if got := say(t, b.dial(), []byte{11}); got != 12 {
		t.Errorf("another connection is answered %d", got)
	}
	if uses, _ := b.seen(); len(uses) != 1 || uses[0].Reason != "malformed" {
		t.Errorf("%+v", uses)
	}
}

// TestManyConnections: more than there are places wait, and none is lost.
func TestManyConnections(t *testing.T) {
	b := begin(t, sshagent.Page{})
	var open []net.Conn
	for range MaxConns {
		c := b.dial()
		if got := say(t, c, []byte{11}); got != 12 {
			t.Fatalf("answered %d", got)
		}
		open = append(open, c)
	}
	late := b.dial()
	if err := send(late, []byte{11}); err != nil {
		t.Fatal(err)
	}
	_ = late.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if _, err := late.Read(make([]byte, 1)); err == nil {
		t.Error("one more than there are places is answered")
	}
	_ = open[0].Close()
	_ = late.SetReadDeadline(time.Now().Add(20 * time.Second))
	if back, err := message(late, 1<<20); err != nil || back[0] != 12 {
		t.Errorf("after another has gone: %q, %v", back, err)
	}
}

// TestAgentThatGoes: what it would have answered is a failure, at once and from then on.
func TestAgentThatGoes(t *testing.T) {
	for name, answer := range map[string]func([]byte) []byte{"hangs up": nil, "says nonsense": func([]byte) []byte { return []byte{99, 1, 2} }} {
		t.Run(name, func(t *testing.T) {
			b := begin(t, sshagent.Page{})
			b.mu.Lock()
			b.answer = answer
			b.mu.Unlock()
			c := b.dial()
			for _, m := range [][]byte{{11}, signs("k"), {11}} {
				if got := say(t, c, m); got != 5 {
					t.Errorf("answered %d", got)
				}
			}
		})
	}
}

// TestEndsWithSkepd: when skepd has gone, nobody is answered any more.
func TestEndsWithSkepd(t *testing.T) {
	b := begin(t, sshagent.Page{})
	c := b.dial()
	if got := say(t, c, []byte{11}); got != 12 {
		t.Fatalf("answered %d", got)
	}
	_ = b.skepd.Close()
	err := <-b.served
	b.served <- err
	if err != nil {
		t.Error(err)
	}
	if _, err := net.Dial("unix", b.path); err == nil {
		t.Error("the socket is still served")
	}
	_ = c.Close()
	_, _ = io.Copy(io.Discard, c)
}
