package kind

// RightGranted is a right that a person or a profile gave to a cell (R8).
type RightGranted struct {
	Right  string `json:"right"`  // canonical text
	Handle string `json:"handle"` // SHA-256 of the handle, never the handle
	By     string `json:"by"`
	How    string `json:"how"`
}

// RightDerived is a right that was narrowed from another (R5).
type RightDerived struct {
	Right  string `json:"right"`
	Handle string `json:"handle"`
	Parent string `json:"parent"` // SHA-256 of the parent's handle
	To     string `json:"to"`     // the cell that now holds it
}

// RightRevoked ends a right and all that was derived from it (R6).
type RightRevoked struct {
	Right   string   `json:"right"`
	Handle  string   `json:"handle"`
	By      string   `json:"by"`
	Reason  string   `json:"reason"`
	Derived []string `json:"derived"` // digests of the handles that went with it
}

// RightRefused is a widening, or the use of a handle that is not the caller's:
// both values, and what is wider.
type RightRefused struct {
	Held   string `json:"held"`
	Wanted string `json:"wanted"`
	Wider  string `json:"wider,omitempty"` // the first thing that is wider
	Reason string `json:"reason"`
	By     string `json:"by,omitempty"`
}

// Amount is what all budget entries say: whose account, in which unit.
type Amount struct {
	Account string `json:"account"`
	Unit    string `json:"unit"` // bytes, ms, usd-micro, tokens, pids
	Hold    string `json:"hold,omitempty"`
	Amount  int64  `json:"amount"`
	Limit   int64  `json:"limit,omitempty"`
	Settled int64  `json:"settled"` // the account after this entry
	Held    int64  `json:"held"`
	Cause   string `json:"cause,omitempty"`
}

// BudgetHeld reserves an amount before its use (R9).
type BudgetHeld Amount

// BudgetSettled replaces a hold by what was used; an amount of zero releases it.
type BudgetSettled Amount

// BudgetWarned tells once that 80 % of a limit is used (R11).
type BudgetWarned Amount

// BudgetExhausted names limit, peak (the amount) and cause.
type BudgetExhausted Amount

// ApprovalOpened is a question put to a person, bound by its hash.
type ApprovalOpened struct {
	Proposal string `json:"proposal"`
	Hash     string `json:"hash"` // SHA-256 of the proposal in full
	Subject  string `json:"subject"`
	Expires  string `json:"expires"`          // UTC, nanoseconds
	Detail   string `json:"detail,omitempty"` // the proposal in full, as the hash binds it (B142)
}

// ApprovalDecided is the answer: which identity, for which hash, at the
// entry's time (field report L06).
type ApprovalDecided struct {
	Proposal string  `json:"proposal"`
	Hash     string  `json:"hash"`
	Decision string  `json:"decision"` // allow, block
	Who      string  `json:"who"`
	Identity string  `json:"identity"` // how that is known: uid, key fingerprint, issuer
	Scope    string  `json:"scope"`    // once, cell, rule
	Reason   string  `json:"reason,omitempty"`
	Active   []Bytes `json:"active,omitempty"` // of a merge: the active paths that were allowed, as they were named (S5a)
}

// Kind implements [Body].
func (RightGranted) Kind() Kind { return KindRightGranted }

// Kind implements [Body].
func (RightDerived) Kind() Kind { return KindRightDerived }

// Kind implements [Body].
func (RightRevoked) Kind() Kind { return KindRightRevoked }

// Kind implements [Body].
func (RightRefused) Kind() Kind { return KindRightRefused }

// Kind implements [Body].
func (BudgetHeld) Kind() Kind { return KindBudgetHeld }

// Kind implements [Body].
func (BudgetSettled) Kind() Kind { return KindBudgetSettled }

// Kind implements [Body].
func (BudgetWarned) Kind() Kind { return KindBudgetWarned }

// Kind implements [Body].
func (BudgetExhausted) Kind() Kind { return KindBudgetExhausted }

// Kind implements [Body].
func (ApprovalOpened) Kind() Kind { return KindApprovalOpened }

// Kind implements [Body].
func (ApprovalDecided) Kind() Kind { return KindApprovalDecided }
