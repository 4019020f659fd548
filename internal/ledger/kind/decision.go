package kind

// Decision is what was decided about something that a cell wanted. The empty
// one means that an entry decides nothing.
type Decision string

// The decisions. Deny is everything that got nothing: blocked, refused, failed.
const (
	Allow Decision = "allow"
	Deny  Decision = "deny"
	Ask   Decision = "ask"
)

// DecisionOf returns the decision that a body holds.
func DecisionOf(b Body) Decision {
	switch b := b.(type) {
	case *FlowIntent:
		return decision(b.Decision)
	case *FlowDenied, *CallDenied, *RightRefused, *BudgetExhausted, *MergeRefused, *FileDropped:
		return Deny
	case *FlowOutcome:
		return decision(b.Decision)
	case *Exec:
		return decision(b.Decision)
	case *NameResolved:
		return decision(b.Decision)
	case *SecretUsed:
		return decision(b.Decision)
	case *ApprovalDecided:
		return decision(b.Decision)
	case *ApprovalOpened, *FlowHeld:
		return Ask
	case *ModelAdmitted, *MergeApplied, *RightGranted, *RightDerived:
		return Allow
	case *ModelSettled:
		if b.Outcome == "refused" || b.Outcome == "failed" {
			return Deny
		}
		return Allow
	}
	return ""
}

// decision takes any word but "allow" for a denial.
func decision(word string) Decision {
	if word == string(Allow) {
		return Allow
	}
	return Deny
}
