package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// Load reads the first of the files that exists: the user's config.yaml stands
// in the place of the system's, they are not mixed. Without any the Config is
// empty. Faults come as the error, for errors.As.
func Load(files ...string) (*Config, error) {
	for _, file := range files {
		src, found, err := read(file)
		if err != nil {
			return nil, err
		}
		if !found {
			continue
		}
		c, faults := Parse(file, src)
		return c, faults.Err()
	}
	return &Config{}, nil
}

// LoadCeiling reads the ceiling. An absent file is the default ceiling, floor
// and all; one that cannot be read or has a fault is an error, and whoever
// needs it does not start (B88).
func LoadCeiling(file string) (*Ceiling, error) {
	src, found, err := read(file)
	if err != nil {
		return nil, err
	}
	if !found {
		return &Ceiling{}, nil
	}
	c, faults := ParseCeiling(file, src)
	if err := faults.Err(); err != nil {
		return nil, err
	}
	if c.Proxy != nil {
		if err := c.Proxy.load(); err != nil {
			return nil, err
		}
	}
	if err := c.loadRoots(); err != nil {
		return nil, err
	}
	return c, nil
}

func read(file string) (src []byte, found bool, err error) {
	if file == "" {
		return nil, false, nil
	}
	src, err = os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("read config: %w", err)
	}
	return src, true, nil
}
