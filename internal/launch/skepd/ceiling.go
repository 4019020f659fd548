package skepd

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/internal/config"
	"skep.dev/skep/internal/daemon/boxlink"
)

// lockWait lets an automatic daemon wait for one that is just ending.
func (o options) lockWait() time.Duration {
	if o.auto {
		return 5 * time.Second
	}
	return 0
}

// ceilingOf reads the operator's ceiling at each start of a cell (B87). An absent
// file is the default ceiling; one that cannot be read starts no cell.
func ceilingOf(file string) func() (*skepv1.BoxCeiling, error) {
	return func() (*skepv1.BoxCeiling, error) {
		raw, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			return &skepv1.BoxCeiling{}, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read the operator's ceiling: %w", err)
		}
		c, faults := config.ParseCeiling(file, raw)
		if faults != nil {
			return nil, fmt.Errorf("read the operator's ceiling: %w", faults)
		}
		return &skepv1.BoxCeiling{
			Limits: c.Limited, Allow: boxlink.Rules(c.Allow), Deny: boxlink.Rules(c.Deny), Open: boxlink.Ranges(c.Open),
			MixedRefuse: c.RefuseMixed,
		}, nil
	}
}
