package boundary

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"skep.dev/skep/internal/testlab"
	"skep.dev/skep/tests/journey"
)

// host is Skep in a lab, with a profile and the prober.
type host struct {
	*journey.Person
	t       *testing.T
	lab     *testlab.Lab
	prober  string
	profile string
	paths   string // of the profile
}

// open prepares cells with net rules (the lines of a profile below version and paths).
func open(t *testing.T, lab *testlab.Lab, rules string) *host {
	t.Helper()
	h := &host{Person: journey.At(t, lab.Dir(), lab.Dir()), t: t, lab: lab, prober: filepath.Join(lab.Dir(), "prober")}
	from, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = from.Close() }()
	to, err := os.OpenFile(h.prober, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(to, from); err != nil {
		t.Fatal(err)
	}
	if err := to.Close(); err != nil {
		t.Fatal(err)
	}
	h.paths = "version: v1\npaths:\n  - {path: " + h.Tree + ", rights: rw}\n  - {path: " + filepath.Dir(h.prober) + ", rights: ro}\n"
	for _, path := range []string{"/usr", "/bin", "/lib", "/lib64"} {
		if _, err := os.Stat(path); err == nil {
			h.paths += "  - {path: " + path + ", rights: ro}\n"
		}
	}
	h.Rules(rules)
	return h
}

// With is the same host in a part of the test, which then fails alone.
func (h *host) With(t *testing.T) *host {
	other := *h
	other.t, other.Person = t, h.Person.With(t)
	return &other
}

// Rules replaces the net rules for the cells that come.
func (h *host) Rules(rules string) {
	h.t.Helper()
	// The prober asks the cell's resolver as any program does; Go's own resolver needs no library.
	h.profile = h.Beside("profile.yaml", h.paths+"env: {set: {GODEBUG: netdns=go}}\n"+rules)
}

// try makes attempts in one cell, in their order.
func (h *host) try(attempts ...attempt) []result {
	h.t.Helper()
	out := h.Skep(h.command(attempts)...)
	var results []result
	if err := json.Unmarshal([]byte(out), &results); err != nil || len(results) != len(attempts) {
		h.t.Fatalf("%d results of %d attempts: %v\n%s", len(results), len(attempts), err, out)
	}
	for _, r := range results {
		h.t.Logf("%s %s %s: %q, got %q, %d ms", r.How, r.At, r.Say, r.Err, r.Got, r.Millis)
	}
	return results
}

func (h *host) command(attempts []attempt) []string {
	h.t.Helper()
	list, err := json.Marshal(attempts)
	if err != nil {
		h.t.Fatal(err)
	}
	return []string{"run", "--yes", "--quiet", "--profile", h.profile, "--", h.prober, probeArgument, string(list)}
}

// entry is a line of `skep ledger show --json`.
type entry struct {
	Kind string         `json:"kind"`
	Body map[string]any `json:"body"`
}

func (e entry) destination() string {
	return net.JoinHostPort(fmt.Sprint(e.Body["destination"]), fmt.Sprint(e.Body["port"]))
}

func (e entry) String() string {
	return fmt.Sprintf("%s %s/%v reason %v, address %v, rule %v, count %v, allow %v", e.Kind, e.destination(), e.Body["transport"],
		e.Body["reason"], e.Body["address"], e.Body["rule"], e.Body["count"], e.Body["allow"])
}

// all is what the ledger says of the last cell; it must be sound.
func (h *host) all() []entry {
	h.t.Helper()
	if r := h.Try("ledger", "verify"); r.Code != 0 {
		h.t.Errorf("skep ledger verify ended with %d\n%s%s", r.Code, r.Out, r.Err)
	}
	all, err := entries(h.Skep("ledger", "show", "last", "--json"))
	if err != nil {
		h.t.Fatal(err)
	}
	return all
}

// entries reads lines of `skep ledger show --json`.
func entries(text string) (all []entry, err error) {
	for line := range strings.Lines(strings.TrimSpace(text)) {
		var e entry
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			return nil, fmt.Errorf("%q: %w", line, err)
		}
		all = append(all, e)
	}
	return all, nil
}

// record is what of it is about flows.
func (h *host) record() []entry {
	h.t.Helper()
	return slices.DeleteFunc(h.all(), func(e entry) bool { return !strings.HasPrefix(e.Kind, "flow.") })
}

// refused demands that the record has a destination with a reason.
func (h *host) refused(record []entry, destination, reason string) {
	h.t.Helper()
	if !slices.ContainsFunc(record, func(e entry) bool { return e.destination() == destination && e.Body["reason"] == reason }) {
		h.t.Errorf("the record does not have %s refused as %s", destination, reason)
		for _, e := range record {
			h.t.Log(e)
		}
	}
}

// arrived is what came to the lab's servers since a mark, by address.
func (h *host) arrived(since int) []string {
	var at []string
	for _, c := range h.lab.Connections()[since:] {
		at = append(at, c.To.String())
	}
	return at
}
