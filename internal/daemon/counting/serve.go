package counting

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"skep.dev/skep/internal/sys"
)

// answerTime bounds a request for the numbers and its answer.
const answerTime = 5 * time.Second

// Serve answers with the numbers at a path from the root, until stop (B200). The directory
// is made if it is not there, and has to be ours alone.
func Serve(path string, numbers http.Handler) (stop func(), err error) {
	if err := ours(filepath.Dir(path)); err != nil {
		return nil, err
	}
	if err := replace(path); err != nil {
		return nil, err
	}
	f, err := sys.ListenUnix(path, sys.Stream)
	if err != nil {
		return nil, fmt.Errorf("serve metrics: %w", err)
	}
	l, err := net.FileListener(f)
	_ = f.Close()
	if err != nil {
		return nil, fmt.Errorf("serve metrics: %w", err)
	}
	s := &http.Server{Handler: numbers, ReadHeaderTimeout: answerTime, WriteTimeout: answerTime}
	go func() { _ = s.Serve(l) }()
	return func() {
		_ = s.Close()
		_ = os.Remove(path)
	}, nil
}

func ours(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("make the directory of metrics: %w", err)
	}
	f, stat, err := sys.OpenDir(dir)
	if err != nil {
		return fmt.Errorf("look at the directory of metrics: %w", err)
	}
	_ = f.Close()
	if int(stat.UID) != os.Getuid() || stat.Mode&0o077 != 0 {
		return fmt.Errorf("the directory %s of metrics is not this user's alone: name one of its own, with mode 0700", dir)
	}
	return nil
}

// replace sees to it that nothing is at path: a socket that nobody listens at is dead.
func replace(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("look at the socket of metrics: %w", err)
	case info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("%s is there and no socket: name another one for metrics", path)
	}
	f, err := sys.ConnectUnix(path, sys.Stream)
	if err == nil {
		_ = f.Close()
	}
	if !errors.Is(err, sys.ErrNotListening) {
		return fmt.Errorf("another program serves at %s: name another socket for metrics", path)
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("replace a dead socket: %w", err)
	}
	return nil
}
