package doctor

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"

	"skep.dev/skep/internal/config"
)

// Settings judges the operator's files as skepd reads them for a cell. A cell whose
// profile asks for a model does not start with a fault in them; one that asks for none
// does not mind config.yaml.
func Settings(load func() (*config.Config, error), ceiling func() error) []Finding {
	var out []Finding
	c, err := load()
	switch {
	case err != nil:
		out = faults("config.yaml", err)
	case len(c.Targets) == 0 && len(c.Roles) == 0:
		out = []Finding{{Name: "models", Status: OK, Detail: "none is configured: an agent's model calls are refused"}}
	default:
		for _, t := range c.Targets {
			out = append(out, target(t))
		}
		out = append(out, roles(c)...)
	}
	if err := ceiling(); err != nil {
		out = append(out, faults("ceiling.yaml", err)...)
	}
	return out
}

// faults is one finding for each.
func faults(file string, err error) (out []Finding) {
	var all config.Faults
	if !errors.As(err, &all) {
		return []Finding{{Name: file, Status: Missing, Detail: err.Error(), Fix: "let skepd's user " + me() + " read it"}}
	}
	for _, f := range all {
		fix := f.Fix
		f.Fix = ""
		out = append(out, Finding{Name: file, Status: Missing, Detail: f.Error(), Fix: fix})
	}
	return out
}

// me is whom skepd runs as.
func me() string { return fmt.Sprintf("(uid %d)", os.Getuid()) }

// target looks at what a target needs: the file that skepd opens, and where its key goes.
func target(t config.Target) Finding {
	f := Finding{Name: "target " + t.Name, Status: OK}
	if t.Kind == config.Script {
		f.Detail = "the script " + t.Script
		f.needs(t.Script)
		return f
	}
	f.Detail = t.URL.String() + ", without a key"
	if t.Key == "" {
		return f
	}
	f.Detail = t.URL.String() + ", its key in " + t.Key
	mode := f.needs(t.Key)
	switch {
	case f.Status != OK:
	case t.URL.Scheme == "http" && !local(t.URL.Hostname()):
		f.Status, f.Detail, f.Fix = Missing, "its key would go to "+t.URL.String()+" unencrypted, and is sent over http to the own machine only", "use https"
	case mode&0o007 != 0:
		f.Status, f.Detail = Degraded, fmt.Sprintf("its key in %s (mode %04o) is open to every user of this host", t.Key, mode.Perm())
		f.Fix = "chmod o= " + t.Key
	}
	return f
}

// needs reports a file that skepd could not open, or that holds nothing.
func (f *Finding) needs(name string) os.FileMode {
	file, err := os.Open(name)
	if err != nil {
		f.Status, f.Detail = Missing, err.Error()
		f.Fix = "let skepd's user " + me() + " read it, or correct its path"
		return 0
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	switch {
	case err != nil:
		f.Status, f.Detail, f.Fix = Missing, err.Error(), "correct its path"
		return 0
	case !info.Mode().IsRegular(), info.Size() == 0:
		f.Status, f.Detail, f.Fix = Missing, name+" is no file or empty", "write the content into it, or correct its path"
	}
	return info.Mode()
}

// local tells whether what is sent to a host stays on this machine.
func local(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// roles are what a profile asks for. A target that no role names answers nobody.
func roles(c *config.Config) (out []Finding) {
	used := map[string]bool{}
	for _, r := range c.Roles {
		f := Finding{Name: "role " + r.Name, Status: OK, Detail: strings.Join(r.Targets, ", then ")}
		if len(r.Targets) == 0 {
			f.Status, f.Detail, f.Fix = Missing, "it names no target", "name one of targets in it"
		}
		out = append(out, f)
		for _, t := range r.Targets {
			used[t] = true
		}
	}
	if i := slices.IndexFunc(c.Targets, func(t config.Target) bool { return !used[t.Name] }); i >= 0 {
		name := c.Targets[i].Name
		out = append(out, Finding{Name: "target " + name, Status: Degraded, Detail: "no role names it, so that nobody's call goes there",
			Fix: fmt.Sprintf("add it to roles: {coder: [%s]}", name)})
	}
	return out
}
