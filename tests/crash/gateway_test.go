package crash

import (
	"strings"
	"syscall"
	"testing"
)

// asks is an agent that asks its model again and again, each time on a connection of its
// own, and says what status it got.
const asks = `
body='{"model":"coder","max_tokens":40,"messages":[{"role":"user","content":"hi"}]}'
while :; do
	exec 3<>/dev/tcp/mesh.skep.alt/80 || { echo none; sleep 0.05; continue; }
	printf 'POST /v1/chat/completions HTTP/1.1\r\nHost: mesh.skep.alt\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s' ${#body} "$body" >&3
	read -t 10 -r -u 3 version status rest
	echo "$status"
	exec 3>&-
	sleep 0.02
done`

// A killed skep-model is followed by another one under a running cell, before and after
// everything else was replaced, too: its calls are answered again, and each is recorded.
func TestKilledGatewayIsFollowed(t *testing.T) {
	r := set(t)
	r.Script(strings.Repeat("- {reply: {text: done}}\n", 5000), "coder")
	profile := r.Beside("p.yaml", "version: v1\npaths: [{path: "+r.Tree+", rights: rw}, {path: /usr, rights: ro}, {path: /bin, rights: ro}, {path: /lib, rights: ro}, {path: /lib64, rights: ro}]\n"+
		"model: {roles: [coder], tokens: 1_000_000}\n")
	s := r.start("run", "--yes", "--quiet", "--name", "asks", "--profile", profile, "--", "/bin/bash", "-c", asks, r.programs)
	answered := func() int { return strings.Count(s.out.String(), "200\n") }
	more := func(when string) {
		t.Helper()
		n := answered()
		if !r.await("answers of the model "+when, func() bool { return answered() > n+5 || s.ended() }) || s.ended() {
			t.Fatalf("%s\n%s", s.out.String(), s.err.String())
		}
	}
	more("at first")
	for _, before := range []string{"", "skepd", "boxes", "worker"} {
		if before != "" {
			r.skep("upgrade", "--only", before)
			more("after another " + before)
		}
		if err := syscall.Kill(r.one(model).pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		more("after its death")
	}
	r.skep("stop", "--grace", "1ms", "asks")
	s.wait(t)
	n := answered()
	settled := 0
	for _, entries := range r.entries() {
		for _, e := range entries {
			if e.Kind == "model.settled" {
				settled++
			}
		}
	}
	if settled < n {
		t.Errorf("%d calls were answered, and %d are recorded", n, settled)
	}
	r.rest()
	r.recorded()
	r.verify()
	r.left()
}
