package main

import (
	"os"
	"strings"
	"testing"
	"time"

	"skep.dev/skep/internal/testlab"
	"skep.dev/skep/tests/journey"
)

// long skips a test that takes minutes, unless there is time.
func long(t *testing.T) {
	t.Helper()
	if os.Getenv("SKEP_SOAK") == "" {
		t.Skip("it takes minutes: make soak runs it")
	}
}

// profile grants the tree and what a shell needs.
func profile(p *journey.Person) string {
	text := "version: v1\npaths:\n  - {path: " + p.Tree + ", rights: rw}\n"
	for _, path := range []string{"/usr", "/bin", "/lib", "/lib64"} {
		if _, err := os.Stat(path); err == nil {
			text += "  - {path: " + path + ", rights: ro}\n"
		}
	}
	return text
}

// TestIdleDaemonEnds: a daemon that started itself ends after ten minutes without a
// cell, and not before.
func TestIdleDaemonEnds(t *testing.T) {
	long(t)
	p := journey.New(t)
	p.Skep("run", "--yes", "--quiet", "--", "/bin/true")
	begin := time.Now()
	if journey.Daemon(p.Dir) == 0 {
		t.Fatal("no skepd runs after a cell")
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for ; journey.Daemon(p.Dir) != 0; <-tick.C {
		if time.Since(begin) > 11*time.Minute {
			t.Fatal("skepd is there after eleven idle minutes")
		}
	}
	if lasted := time.Since(begin); lasted < 10*time.Minute-5*time.Second {
		t.Errorf("skepd ended after %s", lasted)
	}
}

// TestWallBudgetEndsACell: two minutes of wall time are two minutes.
func TestWallBudgetEndsACell(t *testing.T) {
	long(t)
	p := journey.New(t)
	file := p.Beside("profile.yaml", profile(p)+"budget: {wall: 2m}\n")
	begin := time.Now()
	r := p.Try("run", "--yes", "--profile", file, "--", "/bin/sleep", "600")
	if lasted := time.Since(begin); r.Code != 124 || lasted < 2*time.Minute || lasted > 2*time.Minute+10*time.Second {
		t.Errorf("a cell with two minutes ended with %d after %s\n%s", r.Code, lasted, r.Err)
	}
}

// TestIdleFlowLives: a connection that says nothing for five minutes is not cut (B80).
func TestIdleFlowLives(t *testing.T) {
	long(t)
	testlab.Test(t, func(t *testing.T, lab *testlab.Lab) {
		lab.Host("four.test", "93.184.216.34")
		lab.Echo("93.184.216.34:7080")
		p := journey.At(t, lab.Dir(), lab.Dir())
		p.Patience = 6 * time.Minute
		file := p.Beside("profile.yaml", profile(p)+"net: [{name: four.test, ports: [7080]}]\n")
		out := p.Skep("run", "--yes", "--quiet", "--profile", file, "--", "/bin/bash", "-c",
			"exec 3<>/dev/tcp/four.test/7080 && echo before >&3 && head -n1 <&3 && sleep 300 && echo after >&3 && head -n1 <&3")
		if strings.TrimSpace(out) != "before\nafter" {
			t.Errorf("a flow that was idle for five minutes: %q", out)
		}
	})
}
