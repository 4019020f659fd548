package sys

import (
	"os"
	"slices"
	"testing"
)

func TestMountPointsAreRead(t *testing.T) {
	got := mountPoints("22 1 8:1 / / rw - ext4 /dev/root rw\n23 22 0:5 /a /mnt/with\\040a\\134b rw,nosuid master:1 - tmpfs none rw\nshort\n")
	if want := []string{"/", `/mnt/with a\b`}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestMountTableFollows: what is mounted after the table was read is in it the next time.
func TestMountTableFollows(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root mounts")
	}
	dir := t.TempDir()
	var table MountTable
	for _, step := range []struct {
		change  func(string) error
		mounted bool
	}{
		{func(string) error { return nil }, false}, {MountTmpfs, true}, {func(string) error { return nil }, true}, {UnmountTree, false},
	} {
		if err := step.change(dir); err != nil {
			t.Fatal(err)
		}
		points, err := table.Points()
		if err != nil {
			t.Fatal(err)
		}
		if slices.Contains(points, dir) != step.mounted {
			t.Errorf("%s is a mount point: %v", dir, !step.mounted)
		}
	}
}
