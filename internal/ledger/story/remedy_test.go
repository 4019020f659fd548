package story

import (
	"strings"
	"testing"

	"skep.dev/skep/internal/ledger/kind"
)

// A refusal that came after the rules says what would help, in its line, too.
func TestLateRefusalsHaveARemedy(t *testing.T) {
	for _, b := range []kind.Body{
		&kind.FlowOutcome{Reason: "resolved-address-denied"}, &kind.FlowOutcome{Reason: "resolve-failed"},
		&kind.FlowOutcome{Reason: "no-provider"}, &kind.FlowOutcome{Reason: "tls-name-mismatch"},
		&kind.ModelSettled{Outcome: "refused", Reason: "insufficient_quota"}, &kind.ModelSettled{Outcome: "refused", Reason: "no_price"},
		&kind.ModelSettled{Outcome: "refused", Reason: "model_not_found"}, &kind.ModelSettled{Outcome: "refused", Reason: "script_no_match"},
	} {
		if remedy := Remedy(b); remedy == "" || !strings.Contains(Sentence(b), "; allow with: ") {
			t.Errorf("%+v: %q, %q", b, remedy, Sentence(b))
		}
	}
	for _, b := range []kind.Body{&kind.FlowOutcome{}, &kind.ModelSettled{Outcome: "done"}, &kind.Note{}} {
		if got := Remedy(b); got != "" {
			t.Errorf("%+v: %q", b, got)
		}
	}
}
