package sys

import (
	"os"
	"strings"
	"testing"
)

// The kernel itself says that the memory is locked and left out of cores.
func TestLockedMemory(t *testing.T) {
	b, err := Locked(5000)
	if err != nil {
		t.Skip(err)
	}
	copy(b, "value")
	maps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for line := range strings.Lines(string(maps)) {
		if flags, ok := strings.CutPrefix(line, "VmFlags:"); ok {
			found = found || strings.Contains(flags, " lo") && strings.Contains(flags, " dd")
		}
	}
	if !found {
		t.Error("no mapping is locked and left out of cores")
	}
	Unlock(b)
}
