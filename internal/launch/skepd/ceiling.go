package skepd

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"skep.dev/skep/internal/config"
	"skep.dev/skep/internal/daemon"
	"skep.dev/skep/internal/daemon/boxlink"
	"skep.dev/skep/internal/daemon/connector/metrics"
	"skep.dev/skep/internal/daemon/counting"
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

// count has c count and serve the numbers where the operator says (B200); what prevents
// that is no reason to have no cells.
func count(c *daemon.Config, load func() (*config.Config, error)) (stop func()) {
	stop = func() {}
	settings, err := load()
	if err != nil || settings.Metrics == "" {
		return stop // whoever needs the rest of the file says what is wrong with it
	}
	c.Metrics = &metrics.Counts{}
	c.Hidden = append(c.Hidden, filepath.Dir(settings.Metrics))
	if stop, err = counting.Serve(settings.Metrics, c.Metrics); err != nil {
		c.Log.Error("metrics are not served", "err", err)
		return func() {}
	}
	return stop
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
