package attack

import (
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"skep.dev/skep/internal/cell/celltest"
	"skep.dev/skep/internal/sys"
)

// TestPowerfulPrograms: setuid, setgid and file capabilities give an agent nothing,
// and there is nothing left that they could give (L7, L11).
func TestPowerfulPrograms(t *testing.T) {
	c := celltest.New(t)
	dir := c.Make("powerful")
	content, err := os.ReadFile(attacker(t))
	if err != nil {
		t.Fatal(err)
	}
	var args []string
	for name, mode := range map[string]os.FileMode{"setuid": os.ModeSetuid | 0o755, "setgid": os.ModeSetgid | 0o755, "capabilities": 0o755} {
		program := write(t, filepath.Join(dir, name), string(content), 0o755)
		if err := os.Chmod(program, mode); err != nil {
			t.Fatal(err)
		}
		args = append(args, name+"="+program)
	}
	if os.Getuid() == 0 {
		empower(t, filepath.Join(dir, "capabilities"))
	}
	c.ReadOnly(dir)
	attack{
		technique: "privilege", outside: args, inside: args, root: []string{"setuid", "setgid", "capabilities"},
		prepare: func(cmd *exec.Cmd) {
			if os.Getuid() == 0 { // root has no more to gain
				cmd.SysProcAttr.Credential = &syscall.Credential{Uid: 65534, Gid: 65534}
			}
		},
	}.run(t, c)
}

// empower gives a program capabilities(7) of its own, as setcap(8) does.
func empower(t *testing.T, path string) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	const revision2, effective, netRaw = 0x02000000, 1, 1 << 13
	var value []byte
	for _, word := range []uint32{revision2 | effective, netRaw, 0, 0, 0} {
		value = binary.LittleEndian.AppendUint32(value, word)
	}
	if err := sys.SetXattr(f, "security.capability", value); err != nil {
		t.Fatal(err)
	}
}
