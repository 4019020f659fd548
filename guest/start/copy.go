package start

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
)

// Admit lets every name have its address (route.Admitter).
func (everybody) Admit(context.Context, string, netip.Addr) error { return nil }

// Withdraw has nothing to take back.
func (everybody) Withdraw(netip.Addr) {}

// Copy writes this program to dest, or into it if it is a directory, mode 0755, by a
// temporary file and a rename: a running copy runs on (G2).
func Copy(dest string) error {
	if info, err := os.Stat(dest); err == nil && info.IsDir() {
		dest = filepath.Join(dest, "skep-init")
	}
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		return fmt.Errorf("read this program: %w", err)
	}
	defer func() { _ = self.Close() }()
	f, err := os.CreateTemp(filepath.Dir(dest), ".skep-init-")
	if err != nil {
		return fmt.Errorf("copy to %s: %w", dest, err)
	}
	_, err = io.Copy(f, self)
	if err = errors.Join(err, f.Chmod(0o755), f.Close()); err == nil {
		err = os.Rename(f.Name(), dest)
	}
	if err != nil {
		return fmt.Errorf("copy to %s: %w", dest, errors.Join(err, os.Remove(f.Name())))
	}
	return nil
}
