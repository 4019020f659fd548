package skepd

import (
	"fmt"
	"os"
	"time"

	"skep.dev/skep/internal/config"
	"skep.dev/skep/internal/daemon/boxlink"
	"skep.dev/skep/internal/daemon/doctor"
	"skep.dev/skep/internal/place"
	"skep.dev/skep/internal/policy"
)

// lockWait lets an automatic daemon wait for one that is just ending.
func (o options) lockWait() time.Duration {
	if o.auto {
		return 5 * time.Second
	}
	return 0
}

// ceilingOf reads the operator's ceiling at each start of a cell (B87). An absent
// file is the default ceiling; one that cannot be read starts no cell (B88).
func ceilingOf(file string) func() (policy.Ceiling, error) {
	return func() (policy.Ceiling, error) {
		c, err := config.LoadCeiling(file)
		if err != nil {
			return policy.Ceiling{}, fmt.Errorf("read the operator's ceiling: %w", err)
		}
		return boxlink.CeilingOf(c), nil
	}
}

// settingsOf judges both files as a cell would find them.
func settingsOf(p place.Places, o options) func() []doctor.Finding {
	return func() []doctor.Finding {
		return doctor.Settings(configOf(p, o), func() error {
			_, err := config.LoadCeiling(p.Ceiling)
			return err
		})
	}
}

// configOf reads the configuration of models: the user's, else the system's. What
// the user keeps from us is as if it were not there.
func configOf(p place.Places, o options) func() (*config.Config, error) {
	user := p.Config
	if o.config != "" {
		user = o.config
	}
	return func() (*config.Config, error) {
		if f, err := os.Open(user); err == nil {
			_ = f.Close()
			return config.Load(user, p.SystemConfig)
		}
		return config.Load(p.SystemConfig)
	}
}
