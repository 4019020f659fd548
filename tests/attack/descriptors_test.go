package attack

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"skep.dev/skep/internal/cell/celltest"
)

// TestBG28NothingIsInherited: an open file, a variable or an argument of the worker,
// or of whoever started it, is not the agent's (L16, L18b).
func TestBG28NothingIsInherited(t *testing.T) {
	c := celltest.New(t)
	const variable, word = "SKEP_ATTACK_SECRET", "skep-attack-word"
	f, err := os.Create(filepath.Join(c.Dir, "leaked"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	careless := func(cmd *exec.Cmd) {
		cmd.ExtraFiles = append(cmd.ExtraFiles, f, f)
		cmd.Env = append(os.Environ(), variable+"=secret")
	}
	telling := exec.Command("/bin/sh", "-c", "read x", word)
	hold, err := telling.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := telling.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = hold.Close()
		_ = telling.Wait()
	})
	attack{
		technique: "descriptors", outside: []string{variable, word}, worker: careless,
		// PID 1 of the cell was started by its path on the host.
		inside: []string{variable, filepath.Dir(celltest.Program(t, "skep-warden"))},
		prepare: func(cmd *exec.Cmd) {
			careless(cmd)
			cmd.Stdin = f
		},
	}.run(t, c)
}
