package boundary

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"skep.dev/skep/internal/testlab"
	"skep.dev/skep/tests/journey"
)

// asker is a cell that asks api.test each time it is told to, while a stream of it goes on.
type asker struct {
	v     *vault
	in    io.WriteCloser
	lines *bufio.Scanner
	wait  func() error
}

// keepAsking starts it. On the server /stream ticks until told to stop.
func (v *vault) keepAsking(stop chan struct{}) *asker {
	v.t.Helper()
	v.lab.HTTPS("93.184.216.34:443", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/stream" {
			_, _ = io.WriteString(w, "served")
			return
		}
		for n := 0; ; n++ {
			_, _ = fmt.Fprintf(w, "tick %d\n", n)
			_ = http.NewResponseController(w).Flush()
			select {
			case <-stop:
				_, _ = io.WriteString(w, "whole\n")
				return
			case <-time.After(50 * time.Millisecond):
			}
		}
	}))
	script := `curl -sSN -H "Authorization: Bearer $GH_TOKEN" https://api.test/stream > $HOME/stream & S=$!
while read line; do [ "$line" = end ] && break; curl -s -o /dev/null -w '%{http_code} %header{proxy-status}\n' -H "Authorization: Bearer $GH_TOKEN" https://api.test/$line; done
wait $S; echo "stream $? $(tail -1 $HOME/stream)"`
	cmd := v.lab.Program("skep", "run", "--yes", "--quiet", "--profile", v.profile, "--", "/bin/sh", "-c", script)
	cmd.Env = v.Env
	in, err := cmd.StdinPipe()
	if err != nil {
		v.t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		v.t.Fatal(err)
	}
	cmd.Stderr, cmd.Dir = os.Stderr, v.Tree
	if err := cmd.Start(); err != nil {
		v.t.Fatal(err)
	}
	return &asker{v, in, bufio.NewScanner(out), cmd.Wait}
}

// ask is one request: its status, and what the destination has got.
func (a *asker) ask(path string) (answer, said string) {
	a.v.t.Helper()
	_, _ = io.WriteString(a.in, path+"\n")
	if !a.lines.Scan() {
		a.v.t.Fatal("the cell has ended")
	}
	all := a.v.lab.Requests()
	for _, q := range all {
		if q.Path == "/"+path {
			said = q.Header.Get("Authorization")
		}
	}
	return a.lines.Text(), said
}

// until asks again until the answer is as wanted.
func (a *asker) until(what string, wanted func(answer, said string) bool) {
	a.v.t.Helper()
	for begun, n := time.Now(), 0; ; n++ {
		answer, said := a.ask(fmt.Sprintf("%s-%d", what, n))
		if wanted(answer, said) {
			return
		}
		if time.Since(begun) > 20*time.Second {
			a.v.t.Fatalf("%s: still %q, %q", what, answer, said)
		}
	}
}

// end is what became of the stream.
func (a *asker) end() string {
	a.v.t.Helper()
	_, _ = io.WriteString(a.in, "end\n")
	if !a.lines.Scan() {
		a.v.t.Fatal("the cell has ended")
	}
	last := a.lines.Text()
	if err := a.wait(); err != nil {
		a.v.t.Error(err)
	}
	return last
}

func (v *vault) put(value string) {
	v.t.Helper()
	next := v.file + ".new"
	if err := os.WriteFile(next, []byte(value+"\n"), 0o600); err != nil {
		v.t.Fatal(err)
	}
	if err := os.Rename(next, v.file); err != nil {
		v.t.Fatal(err)
	}
	v.refresh()
}

// refresh is what the person does where skepd is another user, who cannot read what takes the
// place of the file that she has handed over. Elsewhere it sees that by itself.
func (v *vault) refresh() {
	v.t.Helper()
	pid := journey.Daemon(v.Dir)
	if pid == 0 || strings.Contains(read(v.t, fmt.Sprintf("/proc/%d/status", pid)), fmt.Sprintf("\nUid:\t%d\t", os.Getuid())) {
		return
	}
	v.Try("refresh", "last")
}

// TestBS14Refresh: a source that is replaced gives the next request the new value, one that
// cannot be read gives none, and what is under way goes on (B131).
func TestBS14Refresh(t *testing.T) {
	testlab.Test(t, func(t *testing.T, lab *testlab.Lab) {
		v := secretive(t, lab, bearer)
		stop := make(chan struct{})
		a := v.keepAsking(stop)
		if answer, said := a.ask("first"); answer != "200 " || said != "Bearer "+v.value {
			t.Fatalf("%q %q", answer, said)
		}
		first := v.value
		v.value = "v4l-" + random(t)
		v.put(v.value)
		a.until("second", func(_, said string) bool { return said == "Bearer "+v.value })
		for what, spoil := range map[string]func() error{
			"missing":  func() error { return os.Remove(v.file) },
			"readable": func() error { v.put(v.value); return os.Chmod(v.file, 0o644) },
			"no value": func() error { v.put("two\nlines"); return nil },
			"link":     func() error { _ = os.Remove(v.file); return os.Symlink("/etc/hostname", v.file) },
		} {
			if err := spoil(); err != nil {
				t.Fatal(err)
			}
			a.until(strings.ReplaceAll(what, " ", ""), func(answer, said string) bool {
				return strings.HasPrefix(answer, "503") && strings.Contains(answer, "secret-unavailable") && said == ""
			})
			_ = os.Remove(v.file)
			v.put(v.value)
			a.until("again"+what[:2], func(_, said string) bool { return said == "Bearer "+v.value })
		}
		close(stop)
		if last := a.end(); last != "stream 0 whole" {
			t.Errorf("the stream ended with %q", last)
		}
		v.nowhere()
		v.value = first
		v.nowhere()
	})
}

// TestSecretsOutliveUpgrades: a cell's secrets and the authority that it trusts go on in
// another skepd and in another box, and are refreshed there (L20a, decision 34).
func TestSecretsOutliveUpgrades(t *testing.T) {
	testlab.Test(t, func(t *testing.T, lab *testlab.Lab) {
		v := secretive(t, lab, bearer)
		stop := make(chan struct{})
		a := v.keepAsking(stop)
		a.ask("first")
		for i, args := range [][]string{{"upgrade"}, {"upgrade"}} {
			if r := v.Try(args...); r.Code != 0 {
				t.Fatalf("%v: %+v", args, r)
			}
			if answer, said := a.ask(fmt.Sprintf("after%d", i)); answer != "200 " || said != "Bearer "+v.value {
				t.Errorf("after %d upgrades: %q %q", i+1, answer, said)
			}
			v.value = "v4l-" + random(t)
			v.put(v.value)
			a.until(fmt.Sprintf("fresh%d", i), func(_, said string) bool { return said == "Bearer "+v.value })
		}
		close(stop)
		if last := a.end(); last != "stream 0 whole" {
			t.Errorf("the stream ended with %q", last)
		}
		v.nowhere()
	})
}

// TestMisuseEndsTheCell: where the profile says so, a placeholder in another place is the end
// of the cell, and the record says why.
func TestMisuseEndsTheCell(t *testing.T) {
	testlab.Test(t, func(t *testing.T, lab *testlab.Lab) {
		lab.HTTPS("93.184.216.34:443", nil)
		v := secretive(t, lab, strings.Replace(bearer, "env: GH_TOKEN", "env: GH_TOKEN, on_misuse: end", 1))
		r := v.sh(`curl -s -H "Authorization: Bearer $GH_TOKEN" https://api.test/; curl -s -H "Cookie: $GH_TOKEN" https://api.test/; sleep 60; echo alive`)
		if r.Code == 0 || strings.Contains(r.Out, "alive") {
			t.Errorf("%+v", r)
		}
		ended := false
		for _, e := range v.all() {
			if e.Kind == "cell.stopped" {
				ended = e.Body["cause"] == "revoked" && strings.Contains(fmt.Sprint(e.Body["detail"]), "secret gh was misused: secret-misplaced at api.test")
			}
		}
		if !ended {
			t.Error("the record does not say why the cell ended")
		}
	})
}

// TestC04ValueIsNotOnTheHost: while a cell with a secret lives, no argument and no environment
// of any process has the value but the one that the person herself gave it in.
func TestC04ValueIsNotOnTheHost(t *testing.T) {
	testlab.Test(t, func(t *testing.T, lab *testlab.Lab) {
		v := secretive(t, lab, "")
		v.Rules("net: [{name: api.test}]\nsecrets: [{name: gh, source: \"env:MY_SECRET\", hosts: [api.test], as: [bearer], env: GH_TOKEN}]\n")
		v.Env = append(v.Env, "MY_SECRET="+v.value)
		stop := make(chan struct{})
		a := v.keepAsking(stop)
		if answer, said := a.ask("first"); answer != "200 " || said != "Bearer "+v.value {
			t.Fatalf("%q %q", answer, said)
		}
		found := 0
		processes, err := filepath.Glob("/proc/[0-9]*")
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range processes {
			name, _ := os.ReadFile(p + "/comm")
			for _, file := range []string{"cmdline", "environ"} {
				raw, err := os.ReadFile(p + "/" + file)
				if err != nil || !strings.Contains(string(raw), v.value) {
					continue
				}
				if found++; strings.TrimSpace(string(name)) != "skep" || file != "environ" {
					t.Errorf("%s of %s (%s) has the value", file, p, name)
				}
			}
		}
		if found == 0 {
			t.Error("nobody has the value: the search proves nothing")
		}
		close(stop)
		a.end()
		v.nowhere()
	})
}
