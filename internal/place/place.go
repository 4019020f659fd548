package place

import (
	"fmt"
	"path/filepath"
	"strconv"
)

// Input is all that the places depend on. An empty field is an absent one.
type Input struct {
	StateFlag string // --state
	RunFlag   string // --run
	UID       int
	Home      string              // of the user, from the user database
	Getenv    func(string) string // os.Getenv, or a map in tests
	Packaged  bool                // skepd as the package's system service
}

// Places are absolute paths. They are made and checked by Ensure.
type Places struct {
	State  string // lock, keys/, ledger/, cells/ID/{layer,log}
	Run    string // api.sock, fd.sock, cells/ID/
	Config string // the user's config.yaml, which may be absent

	SystemConfig string // /etc/skep/config.yaml
	Ceiling      string // /etc/skep/ceiling.yaml

	uid int
}

// The system's own files are root's, for every user.
const (
	systemDir     = "/etc/skep"
	packagedState = "/var/lib/skep"
	rootRun       = "/run/skep"
)

// SystemCeiling is the operator's ceiling.
func SystemCeiling() string { return filepath.Join(systemDir, "ceiling.yaml") }

// Find names the places; it touches nothing.
func Find(in Input) (Places, error) {
	p := Places{
		SystemConfig: filepath.Join(systemDir, "config.yaml"),
		Ceiling:      SystemCeiling(),
		uid:          in.UID,
	}
	env := in.Getenv
	if env == nil {
		env = func(string) string { return "" }
	}
	var err error
	if p.State, err = state(in, env); err != nil {
		return Places{}, err
	}
	if p.Run, err = run(in, env); err != nil {
		return Places{}, err
	}
	switch dir := env("XDG_CONFIG_HOME"); {
	case filepath.IsAbs(dir):
		p.Config = filepath.Join(dir, "skep", "config.yaml")
	case filepath.IsAbs(in.Home):
		p.Config = filepath.Join(in.Home, ".config", "skep", "config.yaml")
	}
	return p, nil
}

func state(in Input, env func(string) string) (string, error) {
	if dir, from := named(in.StateFlag, "--state", env, "SKEP_STATE"); dir != "" {
		return absolute(dir, from)
	}
	if in.Packaged {
		return packagedState, nil
	}
	// The XDG specification: a relative path there is to be ignored.
	if dir := env("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "skep"), nil
	}
	if !filepath.IsAbs(in.Home) {
		return "", fmt.Errorf("find the state directory: user %d has no home directory; name one with --state DIR", in.UID)
	}
	return filepath.Join(in.Home, ".local", "state", "skep"), nil
}

func run(in Input, env func(string) string) (string, error) {
	if dir, from := named(in.RunFlag, "--run", env, "SKEP_RUN"); dir != "" {
		return absolute(dir, from)
	}
	if dir := env("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "skep"), nil
	}
	if in.UID == 0 || in.Packaged {
		return rootRun, nil
	}
	return filepath.Join("/tmp", "skep-"+strconv.Itoa(in.UID)), nil
}

// named is the flag, else the variable, with where it came from.
func named(flag, flagName string, env func(string) string, variable string) (dir, from string) {
	if flag != "" {
		return flag, flagName
	}
	return env(variable), variable
}

func absolute(dir, from string) (string, error) {
	if !filepath.IsAbs(dir) {
		return "", fmt.Errorf("%s %q: want an absolute path", from, dir)
	}
	return filepath.Clean(dir), nil
}

// Connector is where skep-connector has its control socket and those of its agents, unless
// it is told otherwise: beside RUN, which may be another user's.
func (p Places) Connector() string { return p.Run + "-connector" }

// Dirs are the directories that no cell may see (L8b): STATE, RUN, the connector's, and
// those of the config files.
func (p Places) Dirs() []string {
	dirs := []string{p.State, p.Run, p.Connector(), systemDir}
	if p.Config != "" {
		dirs = append(dirs, filepath.Dir(p.Config))
	}
	return dirs
}
