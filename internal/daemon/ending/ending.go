// Package ending says with which status and for which cause a cell ended (L19).
//
// Its law: the agent's own status comes back as it is, unless a budget or Skep ended it.
// A limit that only refused is named beside it.
package ending

import (
	"fmt"
	"syscall"

	"skep.dev/skep/internal/cell"
	"skep.dev/skep/internal/daemon/cells"
	"skep.dev/skep/internal/profile"
)

// The exit statuses that are Skep's own (L19).
const (
	Budget        = 124
	Failed        = 125
	NotExecutable = 126
	NotFound      = 127
)

// Judge turns a driver's result and our own reason into exit status and cause (L19).
func Judge(p *profile.Profile, result cell.Result, cause cells.Cause) (int, cells.Cause) {
	code := result.ExitCode
	memory, bounded := p.Budget.Memory.Value()
	switch {
	case cause.Word == "budget":
		code = Budget
	case cause.Word == "failed", cause.Word == "boundary-died": // whatever the agent made of that
		code = Failed
	case cause.Word != "":
	case result.Usage.OOMKills > 0 && code == 128+int(syscall.SIGKILL) && bounded:
		code = Budget
		cause = cells.Cause{Word: "budget", Budget: "memory", Limit: memory, Peak: result.Usage.MemoryPeak}
	case result.Failed != nil && (code == NotExecutable || code == NotFound):
		cause = cells.Cause{Word: "exit", Detail: result.Failed.Error()}
	case result.Failed != nil:
		code = Failed
		cause = cells.Cause{Word: "failed", Detail: result.Failed.Error()}
	default:
		cause = cells.Cause{Word: "exit"}
	}
	if pids, bounded := p.Budget.PIDs.Value(); bounded && result.Usage.Unforked > 0 && cause.Detail == "" {
		cause.Detail = fmt.Sprintf("budget.pids %d was reached: new processes or threads were refused (%d)", pids, result.Usage.Unforked)
	}
	return code, cause
}
