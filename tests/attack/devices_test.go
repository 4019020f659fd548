package attack

import (
	"os"
	"testing"

	"skep.dev/skep/internal/cell/celltest"
)

// TestDevicesAreTheHarmlessOnes: no node of another device can be made, and none is there (L7).
func TestDevicesAreTheHarmlessOnes(t *testing.T) {
	root := []string{"mknod of a character device", "mknod of the kernel's memory", "mknod of a block device"}
	var there []string
	for _, d := range []string{"/dev/kmsg", "/dev/mem", "/dev/loop-control", "/dev/fuse", "/dev/net/tun", "/dev/vsock", "/dev/vda", "/dev/sda", "/dev/port", "/dev/userfaultfd"} {
		if f, err := os.Open(d); err == nil {
			_ = f.Close()
			there = append(there, d)
		} else if os.Getuid() != 0 {
			there = append(there, d)
			root = append(root, "open "+d)
		}
	}
	c := celltest.New(t)
	attack{
		technique: "devices", outside: append([]string{t.TempDir()}, there...), inside: append([]string{c.Work}, there...), root: root,
	}.run(t, c)
}
