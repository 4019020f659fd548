package story

import (
	"fmt"
	"strings"

	"skep.dev/skep/internal/ledger/kind"
)

func count(n int, word string) string {
	if n == 1 {
		return "1 " + word
	}
	return fmt.Sprintf("%d %ss", n, word)
}

// Sentence tells a body in one escaped line.
func Sentence(b kind.Body) string {
	switch b := b.(type) {
	case *kind.CellDeclared:
		if b.ConfirmedHow == "bundle" {
			return say("agent %s (%s) of another runtime, generation %d, policy %s with %s, at %s", b.Program, b.Identity, b.Generation, short(b.ProfileDigest), count(len(b.Rights), "rule"), b.Listener)
		}
		return say("%s with %s, profile %s (%s), %s, confirmed by %s (%s)",
			b.Program, count(b.Args, "argument"), b.Profile, short(b.ProfileDigest), count(len(b.Rights), "right"), b.ConfirmedBy, b.ConfirmedHow)
	case *kind.CellStarted:
		if len(b.Walls) == 0 {
			return say("its boundary serves, in %s; its walls are the runtime's", duration(b.Ms))
		}
		s := say("started by the %s driver in %s behind %s", b.Driver, duration(b.Ms), strings.Join(b.Walls, ", "))
		if len(b.NotEnforced) > 0 {
			s += say("; NOT enforced here: %s", strings.Join(b.NotEnforced, ", "))
		}
		return s
	case *kind.CellStopped:
		return stopped(b)
	case *kind.Exec:
		return execSentence(b)
	case *kind.CallDenied:
		return say("process %d: %s: %s%s", b.Pid, b.Call, b.Reason, times(b.Count))
	case *kind.FileDropped:
		return say("%s %s: %s", b.Type, b.Path, b.Reason)
	case *kind.Note:
		return say("%s: %s", b.By, b.Text)
	case *kind.Recovery:
		return say("the daemon had not closed: %d entries of %d cells were not sealed, %d torn bytes dropped %s", b.Unsealed, b.Cells, b.Dropped, b.Kept)
	case *kind.Seal:
		return say("entries %d to %d sealed as %s", b.First, b.Last, short(b.Hash))
	case *kind.FlowIntent, *kind.FlowOutcome, *kind.FlowDenied, *kind.FlowHeld, *kind.NameResolved, *kind.SecretUsed:
		return crossing(b)
	case *kind.ModelAdmitted:
		return say("%s asked of %s, %s, up to %d + %d tokens", b.Role, b.Target, bytesOf(b.RequestBytes), b.HeldInput, b.HeldOutput)
	case *kind.ModelSettled:
		return modelSettled(b)
	case *kind.SnapshotCaptured, *kind.SnapshotRolledback, *kind.SnapshotForked, *kind.DiffShown, *kind.MergeApplied, *kind.MergeRefused:
		return tree(b)
	}
	return rights(b)
}

func stopped(b *kind.CellStopped) string {
	s := say("%s, exit %d after %s", b.Cause, b.Exit, duration(b.Ms))
	if b.Signal > 0 {
		s += fmt.Sprintf(", signal %d", b.Signal)
	}
	if b.Limit != "" {
		s += say(", limit %s, peak %s", b.Limit, b.Peak)
	}
	if b.Detail != "" {
		s += say(": %s", sentence(b.Detail))
	}
	return s
}

func execSentence(b *kind.Exec) string {
	s := say("process %d: %s", b.Pid, b.Path)
	for _, a := range b.Args[min(1, len(b.Args)):] {
		s += say(" %s", a)
	}
	if b.Cut {
		s += " ..."
	}
	if b.Ran != "" && b.Ran != b.Path {
		s += say(" (what ran is %s)", b.Ran)
	}
	return s + because(b.Reason, "", 0, "")
}

func crossing(b kind.Body) string {
	switch b := b.(type) {
	case *kind.FlowIntent:
		return flow((*kind.Flow)(b))
	case *kind.FlowDenied:
		return flow((*kind.Flow)(b))
	case *kind.FlowHeld:
		return flow((*kind.Flow)(b)) + "; it waits for the answer"
	case *kind.FlowOutcome:
		s := say("%s:%d/%s ended, %s up, %s down, %s", b.Destination, b.Port, b.Transport, bytesOf(b.BytesUp), bytesOf(b.BytesDown), duration(b.Ms))
		return s + because(b.Reason, "", 0, Remedy(b))
	case *kind.NameResolved:
		s := say("%s %s", b.Name, b.Type)
		if len(b.Answers) > 0 {
			s += say(" -> %s", strings.Join(b.Answers, " "))
		}
		return s + times(b.Count) + because(b.Reason, b.Rule, b.Line, b.AllowWith)
	case *kind.SecretUsed:
		if did, ok := strings.CutPrefix(b.Placement, "agent_socket: "); ok {
			s := say("%s: %s", b.Secret, did)
			if len(b.Host) > 0 {
				s += say(" for %s", b.Host)
			}
			return s + because(b.Reason, "", 0, Remedy(b))
		}
		return secretUsed(b) + because(b.Reason, "", 0, "")
	}
	return ""
}

func secretUsed(b *kind.SecretUsed) string {
	switch {
	case b.Secret == "":
		return say("a placeholder of no secret for %s", b.Host)
	case b.Placement == "":
		return say("secret %s for %s in no place of its own", b.Secret, b.Host)
	}
	return say("secret %s for %s as %s", b.Secret, b.Host, b.Placement)
}

func flow(f *kind.Flow) string {
	s := say("%s:%d/%s", f.Destination, f.Port, f.Transport)
	if f.Direction == "in" {
		s = say("from %s to ", f.Peer) + s
	}
	if f.Address != "" {
		s += say(" at %s", f.Address)
	}
	return s + times(f.Count) + because(f.Reason, f.Rule, f.Line, f.AllowWith)
}

func modelSettled(b *kind.ModelSettled) string {
	if b.Outcome == "refused" {
		return say("a call was refused") + because(b.Reason, "", 0, Remedy(b))
	}
	s := say("%s: %d tokens in, %d out, $%d.%06d, %s", b.Outcome, b.Input, b.Output, b.MicroUSD/1e6, b.MicroUSD%1e6, duration(b.Ms))
	if b.Estimated {
		s += " (estimated)"
	}
	return s + because(b.Reason, "", 0, "")
}

func tree(b kind.Body) string {
	switch b := b.(type) {
	case *kind.SnapshotCaptured:
		return say("captured %s: %d files, %s", short(b.Capture), b.Files, bytesOf(b.Bytes))
	case *kind.SnapshotRolledback:
		return say("back to capture %s", short(b.Capture))
	case *kind.SnapshotForked:
		return say("cell %s from capture %s", b.Child, short(b.Capture))
	case *kind.DiffShown:
		return say("%d added, %d removed, %d changed, %d renamed, %d refused, %d conflicts shown to %s as %s",
			b.Added, b.Removed, b.Changed, b.Renamed, b.Refused, b.Conflicts, b.Who, short(b.Hash))
	case *kind.MergeApplied:
		what := "merged"
		if b.Undo {
			what = "undid"
		}
		return say("%s %s difference %s in %s: %s", b.Who, what, short(b.Hash), b.Root, paths(b.Paths))
	case *kind.MergeRefused:
		what := "merge"
		if b.Undo {
			what = "undo"
		}
		s := say("%s: %s of difference %s: %s", b.Who, what, short(b.Hash), sentence(b.Reason))
		if len(b.Paths) > 0 {
			s += say(": %s", paths(b.Paths))
		}
		return s
	}
	return ""
}

// shownPaths bounds how many paths a line names; the entry has them all.
const shownPaths = 8

// paths joins before say escapes, with a separator that no escaping can make.
func paths(list []kind.Path) string {
	var w strings.Builder
	for i, p := range list {
		if i == shownPaths {
			fmt.Fprintf(&w, ", and %d more", len(list)-i)
			break
		}
		if i > 0 {
			w.WriteString(", ")
		}
		w.WriteString(p.Op + " " + string(p.Path))
	}
	return w.String()
}

func rights(b kind.Body) string {
	switch b := b.(type) {
	case *kind.RightGranted:
		return say("%s, by %s (%s)", b.Right, b.By, b.How)
	case *kind.RightDerived:
		return say("%s, to cell %s", b.Right, b.To)
	case *kind.RightRevoked:
		return say("%s and %d derived from it, by %s: %s", b.Right, len(b.Derived), b.By, b.Reason)
	case *kind.RightRefused:
		return say("%s wanted of %s; wider: %s", b.Wanted, b.Held, b.Wider) + because(b.Reason, "", 0, "")
	case *kind.BudgetHeld:
		return amount("held", kind.Amount(*b))
	case *kind.BudgetSettled:
		return amount("settled", kind.Amount(*b))
	case *kind.BudgetWarned:
		return amount("nearly used", kind.Amount(*b))
	case *kind.BudgetExhausted:
		return amount("used up", kind.Amount(*b))
	case *kind.ApprovalOpened:
		return say("%s, bound by %s", b.Subject, short(b.Hash))
	case *kind.ApprovalDecided:
		what, _, _ := strings.Cut(b.Proposal, " ")
		s := say("%s (%s) said %s to %s %s, for %s", b.Who, b.Identity, b.Decision, what, short(b.Hash), b.Scope)
		for _, path := range b.Active {
			s += say(", with active %s", path)
		}
		return s + because(b.Reason, "", 0, "")
	}
	return "no sentence for this kind"
}

func amount(what string, a kind.Amount) string {
	s := say("%s of %s: %d %s, now %d settled and %d held", what, a.Account, a.Amount, a.Unit, a.Settled, a.Held)
	if a.Limit > 0 {
		s += fmt.Sprintf(" of %d", a.Limit)
	}
	return s + because(a.Cause, "", 0, "")
}
