package door

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"skep.dev/skep/internal/sys"
)

// Listen makes the sockets of the API and of the desk in a run-time directory. What is
// left there is nobody's, since the caller holds the lock of the state.
func Listen(run string) (api, fds *os.File, err error) {
	if fds, err = listen(filepath.Join(run, "fd.sock"), sys.Seqpacket); err != nil {
		return nil, nil, err
	}
	// Last, since whoever finds this one may use the other.
	if api, err = listen(filepath.Join(run, "api.sock"), sys.Stream); err != nil {
		_ = fds.Close()
		return nil, nil, err
	}
	return api, fds, nil
}

func listen(path string, kind sys.UnixKind) (*os.File, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("make %s: %w", filepath.Base(path), err)
	}
	return sys.ListenUnix(path, kind)
}
