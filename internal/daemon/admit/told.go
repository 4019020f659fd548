package admit

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"strings"

	"skep.dev/skep/internal/daemon/cells"
	"skep.dev/skep/internal/daemon/terms"
	"skep.dev/skep/internal/ledger/kind"
)

// Notices are what a person should know before the agent's first byte.
func (a *Application) Notices() []string {
	var list []string
	if len(a.Unenforced) > 0 {
		list = append(list, "not enforced on this host: budget."+strings.Join(a.Unenforced, ", budget."))
	}
	if asked := a.Request.WorkingDir; asked != "" && a.Dir != filepath.Clean(asked) {
		list = append(list, asked+" is not granted: the agent starts in "+a.Dir)
	}
	return list
}

// Declared is the first entry of the cell with that record.
func (a *Application) Declared(r cells.Record) *kind.CellDeclared {
	digest := sha256.New()
	for _, arg := range r.Argv[1:] {
		digest.Write([]byte(arg))
		digest.Write([]byte{0})
	}
	return &kind.CellDeclared{
		Name: r.Name, Program: kind.Bytes(r.Argv[0]), Args: len(r.Argv) - 1, ArgsDigest: hex.EncodeToString(digest.Sum(nil)),
		Profile: kind.Bytes(r.ProfileName), ProfileDigest: r.ProfileDigest, Rights: terms.Rights(a.Profile, a.Plan),
		ConfirmedBy: fmt.Sprintf("uid:%d", a.UID), ConfirmedHow: a.Request.ConfirmedHow,
	}
}
