package attack

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"skep.dev/skep/internal/cell/celltest"
)

// TestUnixSocketsOfTheHost: neither a path nor an abstract name reaches one, not
// even a socket that lies in a directory which the cell is granted (L15).
func TestUnixSocketsOfTheHost(t *testing.T) {
	for name, where := range map[string]func(*celltest.Cell) string{
		"outside of every grant": func(c *celltest.Cell) string { return c.Make("run") },
		"in a writable grant":    func(c *celltest.Cell) string { return c.Work },
		"in a read-only grant": func(c *celltest.Cell) string {
			dir := c.Make("shown")
			c.ReadOnly(dir)
			return dir
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := celltest.New(t)
			dir := where(c)
			args := []string{filepath.Join(dir, "s"), filepath.Join(dir, "q"), filepath.Join(dir, "d"), "skep-attack-" + filepath.Base(c.Dir)}
			listen(t, "unix", args[0])
			listen(t, "unixpacket", args[1])
			d, err := net.ListenPacket("unixgram", args[2])
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = d.Close() })
			listen(t, "unix", "@"+args[3])
			for _, p := range args[:3] {
				if err := os.Chmod(p, 0o777); err != nil {
					t.Fatal(err)
				}
			}
			pid, _ := victim(t)
			attack{technique: "unixpath", outside: append(args[:4:4], pid), inside: append(args[:4:4], "1")}.run(t, c)
		})
	}
}

func listen(t *testing.T, network, address string) {
	t.Helper()
	ln, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
}
