package box

import (
	"fmt"

	"skep.dev/skep/internal/sys"
)

// The descriptors that a box is started with.
const (
	fdDaemon   = 3
	fdWarden   = 4
	fdLifeline = 5
	fdModel    = 6
)

// Inherit takes the descriptors that this process was started with. The model's
// may be missing.
func Inherit() (Config, error) {
	// First of all: the runtime's own poller may sit at a number that nobody gave us.
	hasModel := sys.SocketAt(fdModel)
	var c Config
	var err error
	if c.Daemon, err = sys.Inherited(fdDaemon, "daemon"); err != nil {
		return Config{}, fmt.Errorf("%w: skep-box is started by skepd, never by hand", err)
	}
	if c.Warden, err = sys.Inherited(fdWarden, "warden"); err != nil {
		return Config{}, err
	}
	if c.Lifeline, err = sys.Inherited(fdLifeline, "lifeline"); err != nil {
		return Config{}, err
	}
	if hasModel {
		if c.Model, err = sys.Inherited(fdModel, "model gateway"); err != nil {
			return Config{}, err
		}
	}
	return c, nil
}
