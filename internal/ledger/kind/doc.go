// Package kind is the closed, versioned list of what the ledger can say: one
// Go type for the body of each kind of entry (D2a).
//
// Its laws:
//   - A kind that is not in [All] does not exist: it can be neither written
//     nor read, and the list changes only with [Version].
//   - Every body has a published JSON schema under docs/schemas/ledger/, made
//     from the same type that writes it.
//   - What a cell spelt is [Bytes], never string. Integers are decimal strings
//     in the smallest unit: bytes, milliseconds, micro-dollars, tokens.
//   - No body has room for a secret, a prompt or a file's content: only names,
//     sizes and SHA-256 digests in lower-case hex (D12).
//
// To add a kind: write its body type with a Kind method, add it to [New] and
// [All], raise [Version], run the schema test with -update, and add its
// sentence to internal/ledger/story.
package kind

import (
	"fmt"
	"sync"

	"skep.dev/skep/internal/ledger/jcs"
)

// Version is the version of the list, the "v" of each entry.
const Version = "1"

// Bytes is a byte string as a cell or a user spelt it.
type Bytes = jcs.Bytes

// Kind names what an entry is about.
type Kind string

// Body is the typed body of one entry.
type Body interface{ Kind() Kind }

// The kinds of version 1.
const (
	KindCellDeclared       Kind = "cell.declared"
	KindCellStarted        Kind = "cell.started"
	KindCellStopped        Kind = "cell.stopped"
	KindExec               Kind = "exec"
	KindCallDenied         Kind = "call.denied"
	KindFlowIntent         Kind = "flow.intent"
	KindFlowOutcome        Kind = "flow.outcome"
	KindFlowDenied         Kind = "flow.denied"
	KindFlowHeld           Kind = "flow.held"
	KindNameResolved       Kind = "name.resolved"
	KindSecretUsed         Kind = "secret.used"
	KindRightGranted       Kind = "right.granted"
	KindRightDerived       Kind = "right.derived"
	KindRightRevoked       Kind = "right.revoked"
	KindRightRefused       Kind = "right.refused"
	KindBudgetHeld         Kind = "budget.held"
	KindBudgetSettled      Kind = "budget.settled"
	KindBudgetWarned       Kind = "budget.warned"
	KindBudgetExhausted    Kind = "budget.exhausted"
	KindModelAdmitted      Kind = "model.admitted"
	KindModelSettled       Kind = "model.settled"
	KindSnapshotCaptured   Kind = "snapshot.captured"
	KindSnapshotRolledback Kind = "snapshot.rolledback"
	KindSnapshotForked     Kind = "snapshot.forked"
	KindDiffShown          Kind = "diff.shown"
	KindMergeApplied       Kind = "merge.applied"
	KindMergeRefused       Kind = "merge.refused"
	KindApprovalOpened     Kind = "approval.opened"
	KindApprovalDecided    Kind = "approval.decided"
	KindFileDropped        Kind = "file.dropped"
	KindNote               Kind = "note"
	KindRecovery           Kind = "recovery"
	KindSeal               Kind = "seal"
)

// All lists every kind, in the order of the design.
func All() []Kind {
	return []Kind{
		KindCellDeclared, KindCellStarted, KindCellStopped, KindExec, KindCallDenied,
		KindFlowIntent, KindFlowOutcome, KindFlowDenied, KindFlowHeld, KindNameResolved, KindSecretUsed,
		KindRightGranted, KindRightDerived, KindRightRevoked, KindRightRefused,
		KindBudgetHeld, KindBudgetSettled, KindBudgetWarned, KindBudgetExhausted,
		KindModelAdmitted, KindModelSettled, KindSnapshotCaptured, KindSnapshotRolledback, KindSnapshotForked,
		KindDiffShown, KindMergeApplied, KindMergeRefused, KindApprovalOpened, KindApprovalDecided,
		KindFileDropped, KindNote, KindRecovery, KindSeal,
	}
}

// New returns a pointer to an empty body of kind k, or nil if there is no such
// kind.
func New(k Kind) Body {
	switch k {
	case KindCellDeclared:
		return new(CellDeclared)
	case KindCellStarted:
		return new(CellStarted)
	case KindCellStopped:
		return new(CellStopped)
	case KindExec:
		return new(Exec)
	case KindCallDenied:
		return new(CallDenied)
	case KindFlowIntent:
		return new(FlowIntent)
	case KindFlowOutcome:
		return new(FlowOutcome)
	case KindFlowDenied:
		return new(FlowDenied)
	case KindFlowHeld:
		return new(FlowHeld)
	case KindNameResolved:
		return new(NameResolved)
	case KindSecretUsed:
		return new(SecretUsed)
	case KindRightGranted:
		return new(RightGranted)
	case KindRightDerived:
		return new(RightDerived)
	case KindRightRevoked:
		return new(RightRevoked)
	case KindRightRefused:
		return new(RightRefused)
	case KindBudgetHeld:
		return new(BudgetHeld)
	case KindBudgetSettled:
		return new(BudgetSettled)
	case KindBudgetWarned:
		return new(BudgetWarned)
	case KindBudgetExhausted:
		return new(BudgetExhausted)
	}
	return newOther(k)
}

func newOther(k Kind) Body {
	switch k {
	case KindModelAdmitted:
		return new(ModelAdmitted)
	case KindModelSettled:
		return new(ModelSettled)
	case KindSnapshotCaptured:
		return new(SnapshotCaptured)
	case KindSnapshotRolledback:
		return new(SnapshotRolledback)
	case KindSnapshotForked:
		return new(SnapshotForked)
	case KindDiffShown:
		return new(DiffShown)
	case KindMergeApplied:
		return new(MergeApplied)
	case KindMergeRefused:
		return new(MergeRefused)
	case KindApprovalOpened:
		return new(ApprovalOpened)
	case KindApprovalDecided:
		return new(ApprovalDecided)
	case KindFileDropped:
		return new(FileDropped)
	case KindNote:
		return new(Note)
	case KindRecovery:
		return new(Recovery)
	case KindSeal:
		return new(Seal)
	}
	return nil
}

// Known reports whether k is in the list.
func Known(k Kind) bool {
	switch k {
	case KindCellDeclared, KindCellStarted, KindCellStopped, KindExec, KindCallDenied,
		KindFlowIntent, KindFlowOutcome, KindFlowDenied, KindFlowHeld, KindNameResolved, KindSecretUsed,
		KindRightGranted, KindRightDerived, KindRightRevoked, KindRightRefused,
		KindBudgetHeld, KindBudgetSettled, KindBudgetWarned, KindBudgetExhausted,
		KindModelAdmitted, KindModelSettled, KindSnapshotCaptured, KindSnapshotRolledback, KindSnapshotForked,
		KindDiffShown, KindMergeApplied, KindMergeRefused, KindApprovalOpened, KindApprovalDecided,
		KindFileDropped, KindNote, KindRecovery, KindSeal:
		return true
	}
	return false
}

// Durable reports whether an entry of kind k is acknowledged only when it has
// been synced. Exec entries and denied calls are acknowledged by the write (D3).
func Durable(k Kind) bool { return k != KindExec && k != KindCallDenied }

// LastWord reports whether entries of kind k may use the reserve of a full
// disk: the denial, the stop and what settles with it, and the note of a drop, which
// is what frees the disk (D4).
func LastWord(k Kind) bool {
	switch k {
	case KindFlowDenied, KindCellStopped, KindBudgetSettled, KindNote, KindRecovery, KindSeal:
		return true
	}
	return false
}

// Decode reads the canonical body of an entry of kind k, strictly. The result
// is a pointer to its body type.
func Decode(k Kind, raw []byte) (Body, error) {
	b := New(k)
	if b == nil {
		return nil, fmt.Errorf("kind %q is not in version %s of the list", k, Version)
	}
	if err := codec().Decode(raw, b); err != nil {
		return nil, fmt.Errorf("body of kind %s: %w", k, err)
	}
	return b, nil
}

// codec knows every body type, from its first use on: a command that reads no entry
// does not wait for it.
var codec = sync.OnceValue(newCodec)

func newCodec() jcs.Codec {
	var bodies []any
	for _, k := range All() {
		bodies = append(bodies, New(k))
	}
	return jcs.NewCodec(bodies...)
}

// Append appends the canonical JSON of a body to dst.
func Append(dst []byte, b Body) ([]byte, error) {
	switch b := b.(type) {
	case *FlowIntent:
		if b != nil {
			return appendFlow(dst, (*Flow)(b))
		}
	case *FlowOutcome:
		if b != nil {
			return appendFlow(dst, (*Flow)(b))
		}
	case *FlowDenied:
		if b != nil {
			return appendFlow(dst, (*Flow)(b))
		}
	case *FlowHeld:
		if b != nil {
			return appendFlow(dst, (*Flow)(b))
		}
	}
	return codec().Append(dst, b)
}
