// Package left is what a skepd leaves to the one that takes its place, as it is written
// down (L20a).
//
// Its law: whoever changes a field's meaning raises Version, so that no skepd reads what
// it does not know.
package left

import (
	"encoding/json"
	"time"

	"skep.dev/skep/internal/daemon/allowance"
	"skep.dev/skep/internal/daemon/boxes"
	"skep.dev/skep/internal/daemon/keys"
	"skep.dev/skep/internal/daemon/models"
	"skep.dev/skep/internal/daemon/secrets"
	"skep.dev/skep/internal/handover"
	"skep.dev/skep/internal/handover/bequest"
)

// Version is the version of State.
const Version = 3

// State is all that a skepd leaves to the one that takes its place (L20a), but what stands
// in the state directory. The worker's connection goes by its flag.
type State struct {
	Build   string          `json:"build"`
	Lock    bequest.FD      `json:"lock"`
	API     bequest.FD      `json:"api"`
	FDs     bequest.FD      `json:"fds"`
	Tickets []handover.Left `json:"tickets"`
	Bytes   allowance.Left  `json:"bytes"`
	Models  *models.Left    `json:"models,omitempty"`
	Cells   []Cell          `json:"cells"`
}

// Cell is one running cell. Its profile is in its record.
type Cell struct {
	ID       string          `json:"id"`
	Begin    time.Time       `json:"begin"`
	Held     []bequest.FD    `json:"held"`
	Flows    []string        `json:"flows"`
	Asked    bool            `json:"asked"` // people: what, and what they said, the ledger has
	Notices  []string        `json:"notices,omitempty"`
	Running  json.RawMessage `json:"running"`
	Boundary boxes.Left      `json:"boundary"`
	Keys     *keys.Left      `json:"keys,omitempty"`
	Secrets  *secrets.Left   `json:"secrets,omitempty"`
}
