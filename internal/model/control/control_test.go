package control

import (
	"context"
	"encoding/json/v2"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"skep.dev/skep/internal/ledger/kind"
	"skep.dev/skep/internal/sys"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is a Handler that remembers.
type fake struct {
	mu      sync.Mutex
	config  Config
	content map[string]string // of targets' files
	cells   []Cell
	ended   []string
	refuse  error
	onEnd   func()
}

func (f *fake) Configure(c Config) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.config, f.content = c, map[string]string{}
	for name, t := range c.Targets {
		if t.File != nil {
			b, _ := io.ReadAll(t.File)
			f.content[name] = string(b)
		}
	}
	return f.refuse
}

func (f *fake) AddCell(c Cell, conn *os.File) error {
	defer conn.Close()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cells = append(f.cells, c)
	conn.WriteString("hello")
	return f.refuse
}

func (f *fake) EndCell(id string) error {
	f.mu.Lock()
	onEnd := f.onEnd
	f.mu.Unlock()
	if onEnd != nil {
		onEnd()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended = append(f.ended, id)
	return nil
}

// talk returns both ends; the test fails if Serve returns another error than want.
func talk(t *testing.T, f *fake, records Records) (*Client, *Server) {
	t.Helper()
	a, b, err := sys.SeqpacketPair()
	if err != nil {
		t.Fatal(err)
	}
	server := NewServer(b)
	served := make(chan error, 1)
	go func() { served <- server.Serve(f) }()
	client := NewClient(a, records)
	t.Cleanup(func() {
		client.Close()
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return client, server
}

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func addCell(t *testing.T, c *Client, id string) {
	t.Helper()
	ours, theirs, err := sys.StreamPair()
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	defer theirs.Close()
	if err := c.AddCell(within(t), Cell{ID: id, Roles: []string{"coder"}, Tokens: 5}, theirs); err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	if b, err := io.ReadAll(ours); string(b) != "hello" {
		t.Errorf("the connection carried %q, %v", b, err)
	}
}

// keyFile is a key as skepd opens it.
func keyFile(t *testing.T, key string) *os.File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(path, []byte(key), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func TestConfigCarriesKeysAsDescriptors(t *testing.T) {
	f := &fake{}
	client, _ := talk(t, f, nil)
	key, other := keyFile(t, "sk-1"), keyFile(t, "sk-2")
	cfg := Config{Targets: map[string]Target{
		"b": {OpenAI: "https://b.example/v1", File: other}, "a": {OpenAI: "https://a.example/v1", File: key},
		"c": {OpenAI: "http://127.0.0.1:1/v1", Price: &Price{Input: 3}},
	}, Roles: map[string][]string{"coder": {"a", "b"}}}
	if err := client.Config(within(t), cfg); err != nil {
		t.Fatal(err)
	}
	f.mu.Lock()
	if f.content["a"] != "sk-1" || f.content["b"] != "sk-2" || len(f.content) != 2 || f.config.Targets["c"].Price.Input != 3 {
		t.Errorf("%v %+v", f.content, f.config)
	}
	f.refuse = errors.New("no such thing")
	f.mu.Unlock()
	if err := client.Config(within(t), Config{}); err == nil {
		t.Error("a refused configuration was taken for a good one")
	}
}

func TestRecordReturnsOnlyOnceItIsDurable(t *testing.T) {
	durable := make(chan struct{})
	wrote := make(chan kind.Body, 1)
	client, server := talk(t, &fake{}, func(_ context.Context, cell string, b kind.Body) error {
		<-durable
		if wrote <- b; cell != "one" {
			t.Errorf("cell %q", cell)
		}
		return nil
	})
	addCell(t, client, "one")
	done := make(chan error, 1)
	go func() { done <- server.Record(within(t), "one", &kind.ModelAdmitted{Call: "r-1", Role: "coder"}) }()
	select {
	case err := <-done:
		t.Fatalf("recorded before it was written: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	close(durable)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	got := <-wrote
	if a, ok := got.(*kind.ModelAdmitted); !ok || a.Call != "r-1" || a.Role != "coder" {
		t.Errorf("%+v", got)
	}
}

func TestFailedRecordIsAnError(t *testing.T) {
	client, server := talk(t, &fake{}, func(context.Context, string, kind.Body) error { return errors.New("disk full") })
	addCell(t, client, "one")
	if err := server.Record(within(t), "one", &kind.ModelSettled{}); err == nil {
		t.Error("an entry that was not written is taken for durable")
	}
}

// End waits for the last settlements, and the loop must take their answers.
func TestEndTakesTheLastRecords(t *testing.T) {
	f := &fake{}
	client, server := talk(t, f, func(context.Context, string, kind.Body) error { return nil })
	addCell(t, client, "one")
	f.mu.Lock()
	f.onEnd = func() {
		if err := server.Record(within(t), "one", &kind.ModelSettled{Call: "r-1"}); err != nil {
			t.Errorf("record while ending: %v", err)
		}
	}
	f.mu.Unlock()
	if err := client.EndCell(within(t), "one"); err != nil {
		t.Fatal(err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.ended) != 1 {
		t.Errorf("%v", f.ended)
	}
}

// Attacks skepd from a skep-model that an attacker holds: each of these ends the
// conversation and writes nothing.
func TestRogueGatewayWritesNothing(t *testing.T) {
	settled, _ := json.Marshal(&kind.ModelSettled{})
	for name, m := range map[string]message{
		"another cell":     {Op: opRecord, Whose: "two", Kind: "model.settled", Body: settled},
		"another kind":     {Op: opRecord, Whose: "one", Kind: "right.granted", Body: settled},
		"a body too much":  {Op: opRecord, Whose: "one", Kind: "model.settled", Body: []byte(`{"prompt":"x"}`)},
		"no body":          {Op: opRecord, Whose: "one", Kind: "model.settled"},
		"unasked answer":   {Op: opDone, ID: 99},
		"a role of skepd":  {Op: opRecorded, ID: 1},
		"unknown":          {Op: "shutdown"},
		"ending of a cell": {Op: opEnd, Whose: "one"},
	} {
		t.Run(name, func(t *testing.T) {
			a, b, _ := sys.SeqpacketPair()
			defer b.Close()
			client := NewClient(a, func(context.Context, string, kind.Body) error { t.Error("it was written"); return nil })
			defer client.Close()
			client.mu.Lock()
			client.cells["one"] = true
			client.mu.Unlock()
			null, _ := os.Open(os.DevNull)
			defer null.Close()
			if err := send(b, m, null); err != nil {
				t.Fatal(err)
			}
			<-client.Done()
			if !errors.Is(client.Err(), errProtocol) {
				t.Errorf("got %v", client.Err())
			}
			if _, _, err := client.asked.ask(); err == nil {
				t.Error("an ended client still asks")
			}
		})
	}
}

func TestUnknownFieldAndVersionEndTheConversation(t *testing.T) {
	for _, wire := range []string{`{"v":1,"op":"config","id":1,"more":1}`, `{"v":2,"op":"config","id":1,"config":{}}`, `x`, `{"v":1,"op":"config","id":1}`, `{"v":1,"op":"cell","id":1,"cell":{"id":"a"}}`} {
		a, b, _ := sys.SeqpacketPair()
		served := make(chan error, 1)
		go func() { served <- NewServer(b).Serve(&fake{}) }()
		if err := sys.SendFDs(a, []byte(wire)); err != nil {
			t.Fatal(err)
		}
		if err := <-served; !errors.Is(err, errProtocol) {
			t.Errorf("%s: %v", wire, err)
		}
		a.Close()
	}
}

func TestGoneSkepdFailsWhoWaits(t *testing.T) {
	a, b, _ := sys.SeqpacketPair()
	server := NewServer(b)
	served := make(chan error, 1)
	go func() { served <- server.Serve(&fake{}) }()
	done := make(chan error, 1)
	go func() { done <- server.Record(t.Context(), "one", &kind.ModelAdmitted{}) }()
	if _, _, err := receive(a); err != nil {
		t.Fatal(err)
	}
	a.Close()
	if err := <-done; err == nil {
		t.Error("recorded by nobody")
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
}

func FuzzReceive(f *testing.F) {
	f.Add([]byte(`{"v":1,"op":"record","id":1,"whose":"one","kind":"model.settled","body":{}}`))
	f.Fuzz(func(t *testing.T, wire []byte) {
		if len(wire) == 0 || len(wire) > maxMessage {
			return
		}
		a, b, _ := sys.SeqpacketPair()
		defer a.Close()
		defer b.Close()
		if err := sys.SendFDs(a, wire); err != nil {
			t.Skip()
		}
		if m, _, err := receive(b); err == nil && m.V != Version {
			t.Errorf("took %q", wire)
		}
	})
}

// A conversation that is paused loses no record, and whoever goes on with its socket
// answers for the cells that were given.
func TestConversationIsLeft(t *testing.T) {
	hold, held := make(chan struct{}), make(chan struct{}, 1)
	client, server := talk(t, &fake{}, func(context.Context, string, kind.Body) error {
		held <- struct{}{}
		<-hold
		return nil
	})
	addCell(t, client, "c")
	record := func() error { return server.Record(within(t), "c", &kind.ModelSettled{Call: "1"}) }
	first, second := make(chan error, 1), make(chan error, 1)
	go func() { first <- record() }()
	<-held
	brief, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	paused := make(chan error, 1)
	go func() { paused <- client.Pause(within(t)) }()
	<-brief.Done()
	select {
	case err := <-paused:
		t.Errorf("it was paused with a record under way: %v", err)
	default:
	}
	close(hold)
	if err := errors.Join(<-first, <-paused); err != nil {
		t.Fatal(err)
	}
	go func() { second <- record() }()
	sock, cells := client.Leave()
	dup, err := sys.Duplicate(sock)
	if err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-second:
		t.Errorf("a paused conversation answered: %v", err)
	default:
	}
	recorded := make(chan string, 1)
	heir := Inherit(dup, func(_ context.Context, cell string, _ kind.Body) error {
		recorded <- cell
		return nil
	}, cells)
	if err := <-second; err != nil || <-recorded != "c" {
		t.Errorf("the heir answered %v", err)
	}
	if err := heir.EndCell(within(t), "c"); err != nil {
		t.Error(err)
	}
	if err := heir.Pause(within(t)); err != nil {
		t.Error(err)
	}
	heir.Resume()
	client.Resume()
	_ = heir.Close()
}
