package approvals

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/internal/approval"
	"skep.dev/skep/internal/daemon/cells"
	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/ledger/kind"
)

type clock struct{}

func (clock) Now() time.Time                         { return time.Unix(1000, 0) }
func (clock) AfterFunc(time.Duration, func()) func() { return func() {} }

type journal struct {
	entries []approval.Recorded
	fails   error
}

func (j *journal) Append(_ string, b kind.Body) error {
	if j.fails == nil {
		j.entries = append(j.entries, approval.Recorded{Time: time.Unix(1000, 0), Body: b})
	}
	return j.fails
}

func of(t *testing.T) (*Approvals, *journal) {
	t.Helper()
	s, err := OpenStanding(filepath.Join(t.TempDir(), "approvals.json"))
	if err != nil {
		t.Fatal(err)
	}
	j := &journal{}
	return &Approvals{Machine: &approval.Machine{Journal: j, Clock: clock{}}, Standing: s, Journal: j, Swap: func(string) {}, Lives: func() []string { return nil }}, j
}

func asked(destination string) *skepv1.FlowRecord {
	return &skepv1.FlowRecord{Kind: skepv1.FlowRecord_KIND_DENIED, Destination: destination, Transport: "tcp", Reason: flow.ApprovalNeeded.Token(), Count: 2}
}

// B145: what a card says is read from the destination alone; a record that names none
// opens none.
func TestFindings(t *testing.T) {
	a, j := of(t)
	r := cells.Record{ID: "c", UID: 7, ProfileName: "p.yaml"}
	for destination, want := range map[string]string{
		"a.test:443": "", "9.9.9.9:443": "no name to check", "[fd00::1]:443": "special-purpose address, of fc00::/7", "[64:ff9b::a00:1]:443": "of 10.0.0.0/8",
		"mail.test:25": "mail is sent", "*": "none", "a.test:1-2": "none", ":443": "none", "a.test:0": "none",
	} {
		before := len(j.entries)
		if err := a.take(r, []*skepv1.FlowRecord{asked(destination)}); err != nil {
			t.Fatal(err)
		}
		if want == "none" {
			if len(j.entries) != before {
				t.Errorf("%s opened a card", destination)
			}
			continue
		}
		cards := a.Machine.List("c")
		c := cards[len(cards)-1]
		for _, x := range cards {
			if x.Visible.Title == title(x.Proposal) && strings.Contains(destination, x.Proposal.Host) {
				c = x
			}
		}
		if got := strings.Join(c.Visible.Findings, "; "); !strings.Contains(got, want) || want == "" && got != "" || c.Count != 2 {
			t.Errorf("%s: %q, want %q; %+v", destination, got, want, c)
		}
	}
}

// What was said for good is for one person and one profile, outlives the program, and
// comes back where a crash came between its entry and its line.
func TestStanding(t *testing.T) {
	a, j := of(t)
	r := cells.Record{ID: "c", UID: 7, ProfileName: "p.yaml"}
	if err := a.take(r, []*skepv1.FlowRecord{asked("a.test:443")}); err != nil {
		t.Fatal(err)
	}
	c := a.Machine.List("c")[0]
	if _, err := a.Machine.Decide(approval.Decision{ID: c.ID, Hash: c.Hash, Allow: true, Scope: approval.Always, By: 7}); err != nil {
		t.Fatal(err)
	}
	if got := a.Answers(r); len(got) != 0 {
		t.Errorf("it holds before it is kept: %+v", got)
	}
	for range 2 {
		if err := a.recover(r, j.entries); err != nil {
			t.Fatal(err)
		}
	}
	again, err := OpenStanding(a.Standing.path)
	if err != nil || len(again.All()) != 1 {
		t.Fatal(again, err)
	}
	a.Standing = again
	for _, other := range []cells.Record{{ID: "c", UID: 8, ProfileName: "p.yaml"}, {ID: "c", UID: 7, ProfileName: "q.yaml"}} {
		if got := a.Answers(other); len(got) != 0 {
			t.Errorf("%+v has %+v", other, got)
		}
	}
	if got := a.Answers(r); len(got) != 1 || !got[0].Allow || got[0].Once || got[0].ID != c.Rule() || got[0].Name != "a.test" {
		t.Errorf("%+v", got)
	}
	if err := again.Remove(c.ID); err != nil || len(a.Answers(r)) != 0 {
		t.Errorf("%v, %+v", err, a.Answers(r))
	}
	j.entries = append(j.entries, approval.Recorded{Body: &kind.ApprovalDecided{Proposal: "egress " + c.ID, Decision: "block", Reason: Revoked}})
	if err := a.recover(r, j.entries); err != nil || len(again.All()) != 0 {
		t.Errorf("what was revoked comes back: %v, %+v", err, again.All())
	}
}

// A file that cannot be written changes nothing, and one that is nonsense is told.
func TestStandingFile(t *testing.T) {
	a, _ := of(t)
	s := a.Standing
	if err := os.Mkdir(s.path+".new", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := s.Add(Said{Card: "x"}); err == nil || len(s.All()) != 0 {
		t.Errorf("%v, %+v", err, s.All())
	}
	if err := os.WriteFile(s.path, []byte("["), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenStanding(s.path); err == nil || errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
}
