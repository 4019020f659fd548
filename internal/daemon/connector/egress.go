package connector

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"skep.dev/skep/internal/sys"
)

// maxPath is how long a socket's path may be, in bytes: what every guest can name (B30).
const maxPath = 104

// egressName is an agent's socket in its directory.
const egressName = "egress.sock"

// Ours is the owner of what belongs to the connector's own user.
const Ours = -1

// onTCP begins the address of a listener that is no path (B32).
const onTCP = "tcp:"

// OnTCP is the address of a listener on a port of loopback, which every process of the
// host reaches: for tests and for tools that know no Unix sockets (B32).
func OnTCP(at netip.AddrPort) (string, error) {
	if !at.Addr().IsLoopback() {
		return "", fmt.Errorf("%s is no loopback address: a boundary that others reach needs a Unix socket", at.Addr())
	}
	return onTCP + at.String(), nil
}

// Listen makes the socket of one agent: mode 0600, in a directory of ours that nobody
// else enters (B30). A dead socket is replaced; what lives or is no socket is not (B31).
//
// With another owner than Ours, socket and directory belong to that user, who is the cell's
// root on this host (B30): what it does to them it does to its own channel.
func Listen(path string, owner int) (*os.File, error) {
	f, publish, err := Prepare(path, owner)
	if err == nil {
		err = publish()
	}
	return f, err
}

// unnamed ends the path of a socket that nobody is to find yet.
const unnamed = "~"

// Prepare is Listen but for the name, which publish gives: nobody connects before (G83).
func Prepare(path string, owner int) (f *os.File, publish func() error, err error) {
	if at, ok := strings.CutPrefix(path, onTCP); ok {
		f, err = listenTCP(at)
		return f, func() error { return nil }, err
	}
	if len(path) > maxPath {
		return nil, nil, fmt.Errorf("the socket path %s has %d bytes; at most %d are allowed: choose a shorter one", path, len(path), maxPath)
	}
	if err := Directory(filepath.Dir(path), owner); err != nil {
		return nil, nil, err
	}
	early := path + unnamed
	if err := errors.Join(replaceable(path), replaceable(early)); err != nil {
		return nil, nil, err
	}
	if f, err = sys.ListenUnix(early, sys.Stream); err != nil {
		return nil, nil, err
	}
	if owner != Ours {
		if err := os.Lchown(early, owner, -1); err != nil {
			_, _ = f.Close(), os.Remove(early)
			return nil, nil, fmt.Errorf("give the socket to its cell: %w", err)
		}
	}
	return f, func() error {
		if err := os.Rename(early, path); err != nil {
			return fmt.Errorf("name the socket: %w", err)
		}
		return nil
	}, nil
}

func listenTCP(at string) (*os.File, error) {
	l, err := net.Listen("tcp", at)
	if err != nil {
		return nil, err
	}
	defer func() { _ = l.Close() }() // the file stays
	t, ok := l.(*net.TCPListener)
	if !ok {
		return nil, fmt.Errorf("listen on %s: no TCP", at)
	}
	return t.File()
}

// Directory makes dir for its owner, or sees that it is the owner's or ours, and nobody
// else's.
func Directory(dir string, owner int) error {
	switch err := os.Mkdir(dir, 0o700); {
	case err == nil && owner == Ours:
		return nil
	case err == nil:
		if err := os.Lchown(dir, owner, -1); err != nil {
			_ = os.Remove(dir)
			return fmt.Errorf("give the directory of a socket to its cell: %w", err)
		}
		return nil
	case !errors.Is(err, fs.ErrExist):
		return fmt.Errorf("make the directory of a socket: %w", err)
	}
	f, stat, err := sys.OpenDir(dir)
	if err != nil {
		return fmt.Errorf("look at the directory of a socket: %w", err)
	}
	_ = f.Close()
	switch {
	case int(stat.UID) != os.Getuid() && int(stat.UID) != owner:
		return fmt.Errorf("the directory %s is another user's: the socket of a cell needs one of its own", dir)
	case stat.Mode&0o077 != 0:
		return fmt.Errorf("the directory %s is open to others (mode %04o): chmod 700 %[1]s, or name a directory of its own", dir, stat.Mode&0o777)
	}
	return nil
}

// replaceable sees to it that nothing is at path.
func replaceable(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("look at the socket: %w", err)
	case info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("%s is there and no socket: remove it, or choose another path", path)
	}
	f, err := sys.ConnectUnix(path, sys.Stream) // does not wait: it is answered or it is not
	if err == nil {
		_ = f.Close()
	}
	if !errors.Is(err, sys.ErrNotListening) {
		return fmt.Errorf("another boundary is already listening at %s", path)
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("replace a dead socket: %w", err)
	}
	return nil
}

// Sweep removes what a connector left that was killed: of the agents below dir, each
// socket at which nobody listens, with its directory.
func Sweep(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("look for sockets that were left: %w", err)
	}
	for _, e := range entries {
		for _, name := range []string{egressName, egressName + unnamed} {
			path := filepath.Join(dir, e.Name(), name)
			if info, err := os.Lstat(path); err == nil && info.Mode().Type() == fs.ModeSocket {
				_ = replaceable(path) // one that lives is another connector's
			}
		}
		_ = os.Remove(filepath.Join(dir, e.Name())) // unless something else is in it
	}
	return nil
}
