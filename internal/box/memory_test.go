package box

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"runtime/debug"
	"slices"
	"strconv"
	"testing"

	"skep.dev/skep/internal/boundary"
)

const hungryEnv = "SKEP_BOX_TEST_HUNGRY"

// TestBoxMemoryIsBounded: a box that wants more than it may have dies, by the kernel's
// refusal and not by its own; with what a busy one needs it lives (B150).
func TestBoxMemoryIsBounded(t *testing.T) {
	if mib, err := strconv.Atoi(os.Getenv(hungryEnv)); err == nil {
		if err := limitMemory(); err != nil {
			t.Fatal(err)
		}
		held := make([][]byte, 0, mib)
		for range mib {
			held = append(held, bytes.Repeat([]byte{1}, 1<<20))
		}
		t.Logf("held %d MiB", len(held))
		return
	}
	for mib, lives := range map[int]bool{100: true, boundary.BoxMemory >> 20: false} {
		if lives && raced() {
			continue
		}
		c := exec.Command("/proc/self/exe", "-test.run=^TestBoxMemoryIsBounded$")
		c.Env = append(os.Environ(), hungryEnv+"="+strconv.Itoa(mib))
		out, err := c.CombinedOutput()
		var exit *exec.ExitError
		if lives && err != nil || !lives && !errors.As(err, &exit) {
			t.Errorf("a box that wants %d MiB: %v\n%.2000s", mib, err, out)
		}
	}
}

// raced reports a build with the race detector, which takes all that memory for itself.
func raced() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}
