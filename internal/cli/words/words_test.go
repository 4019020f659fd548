package words

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	skepv1 "skep.dev/skep/api/skep/v1"
)

func TestFooter(t *testing.T) {
	for name, c := range map[string]struct {
		cell *skepv1.Cell
		want []string
	}{
		"plain": {
			&skepv1.Cell{Id: "i", Cause: "exit", Started: "2026-01-02T03:04:05Z", Stopped: "2026-01-02T03:04:19Z"},
			[]string{"cell i stopped: exit 0, 14 s"},
		},
		"all": {
			&skepv1.Cell{Id: "i", Cause: "budget: wall", Limit: 2000, ExitCode: 124, FilesChanged: 3, CrossingsRefused: 2},
			[]string{"cell i stopped: budget: wall, exit 124, 0 s", "its limit, budget.wall, was 2s: skep why i", "3 files changed: skep diff i", "2 crossings refused: skep ledger show i --decision deny"},
		},
		"one, and hostile": {
			&skepv1.Cell{Id: "i", Cause: "failed: \x1b[2J", FilesChanged: 1, CrossingsRefused: 1},
			[]string{`cell i stopped: failed: \x1b[2J, exit 0, 0 s`, "1 file changed: skep diff i", "1 crossing refused: skep ledger show i --decision deny"},
		},
		"not counted": {&skepv1.Cell{Id: "i", Cause: "exit", FilesChanged: -1}, []string{"cell i stopped: exit 0, 0 s", "files changed, but they were not counted: skep diff --stat i"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := Footer(c.cell)
			if strings.Join(got, "\n") != strings.Join(c.want, "\n") {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// A state is a word in JSON too, and what a cell was called cannot pass for one.
func TestStateIsAWord(t *testing.T) {
	fake := `"state":"CELL_STATE_STOPPED"`
	line, err := JSON(&skepv1.Cell{Id: fake, Name: fake, State: skepv1.CellState_CELL_STATE_STOPPED, Argv: []string{fake}})
	if err != nil {
		t.Fatal(err)
	}
	var c struct {
		ID, Name, State string
		Argv            []string
	}
	if err := json.Unmarshal(line, &c); err != nil {
		t.Fatal(err)
	}
	if c.State != "stopped" || c.ID != fake || c.Name != fake || c.Argv[0] != fake {
		t.Errorf("%s", line)
	}
	// A state of a later release stays what it is.
	if line, err = JSON(&skepv1.Cell{State: 99}); err != nil || !bytes.Contains(line, []byte(`"state":99`)) {
		t.Errorf("%s %v", line, err)
	}
}
