package connector

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/internal/boundary/link"
	"skep.dev/skep/internal/credential"
	"skep.dev/skep/internal/credential/issuertest"
	"skep.dev/skep/internal/right"
	"skep.dev/skep/internal/sys"
)

func everyPort() (right.Ports, error) { return right.ParsePorts("1-65535") }

// Attach is idempotent: the same bundle is the same socket, a changed one swaps the policy,
// ends what lost its right, and leaves the other flows and agents alone (B210, BC-35).
func TestAttachAgain(t *testing.T) {
	l := newLab(t)
	a := l.attach("a.example", "one.test", "two.test")
	other := l.attach("b.example", "one.test")
	one, _ := l.tunnel(a.Egress, "one.test")
	two, _ := l.tunnel(a.Egress, "two.test")
	third, status := l.tunnel(other.Egress, "one.test")
	if status != 200 || !lives(one) || !lives(two) || !lives(third) {
		t.Fatalf("status %d, or a tunnel is dead", status)
	}
	if again := l.attach("a.example", "one.test", "two.test"); again.Egress != a.Egress {
		t.Errorf("again: %+v", again)
	}
	if again := l.attach("a.example", "two.test"); again.Egress != a.Egress {
		t.Errorf("changed: %+v", again)
	}
	if lives(one) || !lives(two) || !lives(third) {
		t.Errorf("after the swap: one %v, two %v, third %v", lives(one), lives(two), lives(third))
	}
	if _, status := l.tunnel(a.Egress, "one.test"); status != 403 {
		t.Errorf("a lost right: %d", status)
	}
	if _, err := l.Attach(t.Context(), "b.yaml", []byte("version: v1\nagent: {id: a.example}\negress: {allow: ['*']}\nx: 1\n"), Life{}); err == nil {
		t.Error("an invalid bundle is taken")
	}
	if !lives(two) {
		t.Error("an invalid bundle ended a flow")
	}
	all, err := l.Status(t.Context(), "")
	for late := time.Now().Add(5 * time.Second); err == nil && (all[0].Flows > 1 || all[0].Denials == 0) && time.Now().Before(late); { // until the last record
		all, err = l.Status(t.Context(), "")
	}
	if err != nil || len(all) != 2 || all[0].Agent != "a.example" || all[0].Flows != 1 || all[0].Denials != 1 || all[0].Verified || all[1].Flows != 1 {
		t.Errorf("%+v, %v", all, err)
	}
	var versions []string
	for _, r := range l.kinds("a.example") {
		if p, ok := r["policy"].(string); ok {
			versions = append(versions, p)
		}
		if r["meta"].(map[string]any)["identity"] != "unverified" || r["listener"] != a.Egress || r["agent"] != "a.example" {
			t.Errorf("%v", r)
		}
	}
	if n := len(versions); n < 4 || versions[0] == versions[n-1] || versions[n-1] != all[0].Policy {
		t.Errorf("%q", versions)
	}
}

// Detach ends flows, removes the socket and leaves nothing; a successor on the same path
// has its own generation (BC-50, BG-22, BG-23).
func TestDetach(t *testing.T) {
	l := newLab(t)
	a, b := l.attach("a.example", "ok.test"), l.attach("b.example", "ok.test")
	mine, _ := l.tunnel(a.Egress, "ok.test")
	others, _ := l.tunnel(b.Egress, "ok.test")
	if err := l.Detach(t.Context(), "a.example"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Dir(a.Egress)); !os.IsNotExist(err) {
		t.Errorf("left behind: %v", err)
	}
	if lives(mine) || !lives(others) {
		t.Error("the wrong flow has ended")
	}
	records := l.kinds("a.example")
	if last := records[len(records)-1]; last["kind"] != "detached" || records[len(records)-2]["reason"] != "revoked" {
		t.Errorf("%v", records)
	}
	if err := errors.Join(l.Detach(t.Context(), "a.example"), l.Detach(t.Context(), "nobody.example")); err != nil {
		t.Errorf("an unknown agent: %v", err)
	}
	if _, err := l.Status(t.Context(), "a.example"); !errors.Is(err, ErrUnknown) {
		t.Errorf("%v", err)
	}
	l.attach("a.example", "ok.test")
	after := l.kinds("a.example")
	if first, last := after[0]["generation"], after[len(after)-1]["generation"]; first == last {
		t.Errorf("generation %v again", last)
	}
}

// A box that dies takes its socket along, is recorded, and can be attached anew.
func TestBoxDies(t *testing.T) {
	l := newLab(t)
	a := l.attach("a.example", "ok.test")
	c, _ := l.tunnel(a.Egress, "ok.test")
	_ = l.use("a.example", func(s *slot) error { s.run.signal(); return nil })
	<-l.Gone("a.example")
	if lives(c) {
		t.Error("a flow outlives its box")
	}
	if _, err := net.Dial("unix", a.Egress); err == nil {
		t.Error("somebody listens")
	}
	again := l.attach("a.example", "ok.test")
	if _, status := l.tunnel(again.Egress, "ok.test"); status != 200 {
		t.Errorf("attached anew: %d", status)
	}
	late := time.Now().Add(5 * time.Second)
	for died := false; !died; {
		for _, r := range l.kinds("a.example") {
			died = died || r["kind"] == "died"
		}
		if time.Now().After(late) {
			t.Fatalf("%v", l.kinds("a.example"))
		}
	}
}

// What the records cannot take does not open; what is refused stays so (BC-37, B4).
func TestNoRecordsNoFlow(t *testing.T) {
	l := newLab(t)
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip(err)
	}
	a := l.attach("a.example", "ok.test")
	l.Sink.(*File).mu.Lock()
	l.Sink.(*File).out = full
	l.Sink.(*File).mu.Unlock()
	if _, err := l.Attach(t.Context(), "b", l.bundle("b.example", "ok.test"), Life{}); err == nil {
		t.Error("attached without a record")
	}
	if _, err := os.Stat(filepath.Join(l.Dir, "b.example")); !os.IsNotExist(err) {
		t.Errorf("left behind: %v", err)
	}
	if _, err := l.Refresh(t.Context(), "b.example", "/none"); !errors.Is(err, ErrUnknown) {
		t.Errorf("%v", err)
	}
	if _, status := l.tunnel(a.Egress, "ok.test"); status != 503 {
		t.Errorf("unrecorded: %d", status)
	}
	if _, status := l.tunnel(a.Egress, "no.test"); status != 403 {
		t.Errorf("denied: %d", status)
	}
	f, err := os.OpenFile(l.records, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	l.Sink.(*File).mu.Lock()
	l.Sink.(*File).out = f
	l.Sink.(*File).mu.Unlock()
	if _, status := l.tunnel(a.Egress, "ok.test"); status != 200 {
		t.Errorf("recorded: %d", status)
	}
}

// BC-50: a credential that does not hold attaches nobody, and changes nothing of who is.
func TestCredentials(t *testing.T) {
	l := newLab(t)
	i := issuertest.New(t)
	v, err := credential.Discover(t.Context(), i.Client, i.URL, "skep")
	if err != nil {
		t.Fatal(err)
	}
	l.Unverified, l.Verifier = false, v
	file := filepath.Join(t.TempDir(), "jwt")
	with := func(token string) []byte {
		if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
			t.Fatal(err)
		}
		return []byte(fmt.Sprintf("version: v1\nagent: {id: a.example, external_id: x, credential: %s}\negress: {allow: [{name: ok.test, ports: [%d], resolve: [127.0.0.1]}]}\n", file, l.port))
	}
	for what, src := range map[string][]byte{
		"wrong subject": with(i.Token("y", "skep", time.Hour, nil)), "no external_id": []byte("version: v1\nagent: {id: a.example, credential: " + file + "}\n"),
		"no credential": []byte("version: v1\nagent: {id: a.example, external_id: x}\n"), "no file": []byte("version: v1\nagent: {id: a.example, external_id: x, credential: /none}\n"),
	} {
		if _, err := l.Attach(t.Context(), "b.yaml", src, Life{}); err == nil {
			t.Errorf("%s: attached", what)
		}
	}
	a, err := l.Attach(t.Context(), "b.yaml", with(i.Token("x", "skep", time.Hour, nil)), Life{})
	if err != nil || time.Until(a.Expiry) < 50*time.Minute {
		t.Fatalf("%+v, %v", a, err)
	}
	c, _ := l.tunnel(a.Egress, "ok.test")
	with(i.Token("x", "other", 2*time.Hour, nil))
	if _, err := l.Refresh(t.Context(), "a.example", file); err == nil {
		t.Error("refreshed by another audience's")
	}
	if s, err := l.Status(t.Context(), "a.example"); err != nil || !s[0].Verified || !s[0].Expiry.Equal(a.Expiry) {
		t.Errorf("%+v, %v", s, err)
	}
	with(i.Token("x", "skep", 2*time.Hour, nil))
	if until, err := l.Refresh(t.Context(), "a.example", file); err != nil || time.Until(until) < 100*time.Minute || !lives(c) {
		t.Errorf("%s, %v", until, err)
	}
	if _, err := l.Refresh(t.Context(), "b.example", file); !errors.Is(err, ErrUnknown) {
		t.Errorf("%v", err)
	}
	l.Verifier = nil
	if _, err := l.Attach(t.Context(), "b.yaml", with(i.Token("x", "skep", time.Hour, nil)), Life{}); !errors.Is(err, ErrNoVerifier) {
		t.Errorf("%v", err)
	}
}

// Many calls about many agents, and the end in the middle: nothing is left.
func TestManyAtOnce(t *testing.T) {
	l := newLab(t)
	var all sync.WaitGroup
	for i := range 4 {
		id := fmt.Sprintf("a%d.example", i)
		for range 2 {
			all.Go(func() {
				for range 3 {
					if _, err := l.Attach(context.Background(), "b", l.bundle(id, "ok.test"), Life{}); err != nil && !errors.Is(err, ErrClosed) {
						t.Error(err)
					}
					if err := l.Detach(context.Background(), id); err != nil && !errors.Is(err, ErrClosed) {
						t.Error(err)
					}
				}
			})
		}
	}
	all.Go(func() { _, _ = l.Status(context.Background(), ""); l.Renamed(&skepv1.ResolverUpdate{}) })
	all.Wait()
	l.attach("last.example")
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(l.Dir); err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
	if _, err := l.Attach(t.Context(), "b", l.bundle("late.example"), Life{}); !errors.Is(err, ErrClosed) {
		t.Errorf("%v", err)
	}
}

// BC-38: what may not be a socket's path is told, and nothing is touched.
func TestPaths(t *testing.T) {
	dir, err := os.MkdirTemp("", "p")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	at := func(name string) string { return filepath.Join(dir, name) }
	f, err := Listen(at("s"), Ours)
	if err != nil {
		t.Fatal(err)
	}
	if info, _ := os.Stat(at("s")); info.Mode().Perm() != 0o600 {
		t.Errorf("mode %s", info.Mode())
	}
	open := at("open")
	if err := errors.Join(os.WriteFile(at("file"), nil, 0o600), os.Mkdir(open, 0o700), os.Chmod(open, 0o755)); err != nil {
		t.Fatal(err)
	}
	long := at(strings.Repeat("x", 105-len(dir)-1))
	for path, want := range map[string]string{
		at("s"): "another boundary is already listening", at("file"): "no socket", long: "has 105 bytes; at most 104", filepath.Join(open, "s"): "chmod 700", "/s": "the directory / is",
	} {
		if _, err := Listen(path, Ours); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", path, err)
		}
	}
	_ = f.Close() // the socket is dead now, and stays in its place
	g, err := Listen(at("s"), Ours)
	if err != nil {
		t.Fatalf("a dead socket: %v", err)
	}
	_ = g.Close()
	h, err := Listen(at("new/s"), Ours)
	if err != nil {
		t.Fatalf("a directory to be made: %v", err)
	}
	_ = h.Close()
	if info, _ := os.Stat(at("new")); info.Mode().Perm() != 0o700 {
		t.Errorf("mode %s", info.Mode())
	}
}

// A box that is silent holds up nobody: it is killed, and its agent can be detached.
func TestSilentBox(t *testing.T) {
	l := newLab(t)
	l.attach("a.example", "ok.test")
	other := l.attach("b.example", "ok.test")
	var run *running
	_ = l.use("a.example", func(s *slot) error { run = s.run; return run.cmd.Process.Signal(syscall.SIGSTOP) })
	var all []Status
	for range 100 { // a thread of it may still run when the signal is sent
		var err error
		if all, err = l.Status(t.Context(), ""); err != nil || all[0].Fault != "" {
			break
		}
	}
	if len(all) != 2 || !strings.Contains(all[0].Fault, "deadline") || all[1].Fault != "" || all[1].Policy == "" {
		t.Errorf("%+v", all)
	}
	hosts := &skepv1.ResolverUpdate{}
	for i := range 20_000 {
		hosts.Hosts = append(hosts.Hosts, &skepv1.HostsEntry{Name: fmt.Sprintf("host-%d.example", i), Addresses: []string{"192.0.2.1"}})
	}
	l.Renamed(hosts) // more than the socket holds
	<-run.gone
	if err := l.Detach(t.Context(), "a.example"); err != nil {
		t.Error(err)
	}
	if _, status := l.tunnel(other.Egress, "ok.test"); status != 200 {
		t.Errorf("another agent: %d", status)
	}
}

// What a box says that it may not say ends it, and is written nowhere.
func TestBoxThatLies(t *testing.T) {
	for what, batch := range map[string]link.Batch{
		"a kind of ours": {Records: []link.Record{{Kind: "detached"}}}, "no kind": {Records: []link.Record{{}}}, "too many": {Records: make([]link.Record, link.MaxRecords+1)},
	} {
		if batch.Valid() {
			t.Errorf("%s is taken", what)
		}
	}
	good := link.Batch{Records: []link.Record{{Kind: "intent"}, {Kind: "outcome"}, {Kind: "denied"}}}
	if !good.Valid() {
		t.Error("records of a box are refused")
	}
}

// B30: a cell whose root is another user of the host gets its own socket, and nothing else.
func TestSocketOfAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give a socket away")
	}
	const mapped = 123_456
	l := newLab(t)
	l.Owner = mapped
	a := l.attach("a.example", "ok.test")
	for path, mode := range map[string]uint32{a.Egress: 0o600, filepath.Dir(a.Egress): 0o700} {
		if s, err := sys.Owner(path); err != nil || s.UID != mapped || s.Mode != mode {
			t.Errorf("%s: %+v, %v", path, s, err)
		}
	}
	if s, err := sys.Owner(l.Dir); err != nil || s.UID != 0 {
		t.Errorf("%+v, %v", s, err)
	}
	if _, status := l.tunnel(a.Egress, "ok.test"); status != 200 {
		t.Errorf("status %d", status)
	}
	l.attach("a.example") // the directory is the cell's now
	if err := l.Detach(t.Context(), "a.example"); err != nil {
		t.Error(err)
	}
	f, err := Listen(filepath.Join(l.Dir, "b", "s"), mapped)
	if err != nil {
		t.Fatal(err)
	}
	_ = f.Close()
	if _, err := Listen(filepath.Join(l.Dir, "b", "t"), mapped+1); err == nil {
		t.Error("a directory of a third user is taken")
	}
}

// TestLives: a generation is recorded with its policy before Attach answers; one that is not
// new, or has a slice that was another's, is refused, and so is a second one beside a first.
func TestLives(t *testing.T) {
	l := newLab(t)
	at := func(generation uint64, slice uint32) error {
		_, err := l.Attach(t.Context(), "b.yaml", l.bundle("a.example", "ok.test"), Life{Generation: generation, Slice: &slice})
		return err
	}
	if err := at(4, 0); err != nil {
		t.Fatal(err)
	}
	if k := l.kinds("a.example"); len(k) != 1 || k[0]["kind"] != "attached" || k[0]["generation"] != 4.0 || k[0]["pool_slice"] != 0.0 || k[0]["policy"] == nil {
		t.Errorf("%v", k)
	}
	if err := at(4, 0); err != nil {
		t.Errorf("the same life again: %v", err)
	}
	for what, err := range map[string]error{"beside it": at(5, 1), "with another slice": at(4, 1)} {
		if err == nil {
			t.Errorf("attached %s", what)
		}
	}
	if err := l.Detach(t.Context(), "a.example"); err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{"the same generation": at(4, 1), "an older one": at(3, 1), "the same slice": at(5, 0)} {
		if err == nil {
			t.Errorf("attached with %s", what)
		}
	}
	if err := at(5, 1); err != nil {
		t.Error(err)
	}
}
