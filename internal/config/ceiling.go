package config

import (
	"crypto/x509"
	"fmt"
	"os"
	"strings"

	"skep.dev/skep/internal/right"
	"skep.dev/skep/internal/right/declared"
	"skep.dev/skep/internal/strict"
)

// Ceiling is ceiling.yaml: what the operator lets any cell reach (B87).
type Ceiling struct {
	File string

	// Allow bounds every profile: a flow needs a match here too. Limited tells
	// whether the file has an allow list; without one, profiles alone decide.
	Limited bool
	Allow   []declared.NetRule
	Deny    []declared.NetRule // beat every allow, of profiles too

	Open        []declared.Range // parts of the floor (table F) that are open (B105)
	Proxy       *Proxy           // by which all egress goes; nil without one (B180)
	RefuseMixed bool             // `mixed: refuse`: one bad address denies the name (B102)
	RootsFile   string           // certificates, beside the system's, that may vouch for a destination with a secret, or "" (B126)
	Roots       []byte           // PEM; once loaded
}

// AllowRights and DenyRights are the lists as sets.
func (c *Ceiling) AllowRights() right.Nets { return rights(c.Allow) }

// DenyRights are the rules that beat every allow.
func (c *Ceiling) DenyRights() right.Nets { return rights(c.Deny) }

func rights(rules []declared.NetRule) right.Nets {
	var out right.Nets
	for _, r := range rules {
		out = append(out, r.Net)
	}
	return out
}

// ParseCeiling reads a ceiling.yaml. In it absent ports mean all of them: for
// an allow rule all but mail (B82), for a deny rule mail too.
func ParseCeiling(file string, src []byte) (*Ceiling, Faults) {
	root, r := strict.Read(file, src)
	c := &Ceiling{File: file}
	if root != nil {
		readCeiling(r, c, root)
	}
	if faults := r.Faults(); faults != nil {
		return nil, faults
	}
	return c, nil
}

func readCeiling(r *strict.Report, c *Ceiling, root *strict.Node) {
	f, ok := r.Fields(root, "the ceiling", "deny: [...]", []string{"version", "allow", "deny", "open", "mixed", "proxy", "roots"})
	if !ok {
		return
	}
	if v, ok := f["version"]; ok {
		r.OneOf(v, "version", "v1")
	}
	both := right.TCP | right.UDP
	if v, ok := f["allow"]; ok {
		c.Limited = true
		// An empty list is a meaning of its own here: nothing may be reached.
		if v.Kind != strict.List || len(v.Items) > 0 {
			c.Allow = declared.Nets(r, v, "allow", declared.Defaults{Ports: allPorts(false), Transports: both})
		}
	}
	if v, ok := f["deny"]; ok {
		c.Deny = declared.Nets(r, v, "deny", declared.Defaults{Ports: allPorts(true), Transports: both, Deny: true})
	}
	if v, ok := f["open"]; ok {
		c.Open = declared.Ranges(r, v, "open", allPorts(false), false)
	}
	if v, ok := f["proxy"]; ok {
		c.Proxy = proxy(r, v)
	}
	if v, ok := f["roots"]; ok {
		c.RootsFile = wholePath(r, v, "roots", "file:/etc/skep/roots.pem")
	}
	if v, ok := f["mixed"]; ok {
		word, _ := r.OneOf(v, "mixed", "drop", "refuse")
		c.RefuseMixed = word == "refuse"
	}
}

// wholePath takes file:PATH.
func wholePath(r *strict.Report, n *strict.Node, what, example string) string {
	s, ok := r.Str(n, what, example)
	path, is := strings.CutPrefix(s, "file:")
	if ok && (!is || !strings.HasPrefix(path, "/")) {
		r.Fault(n, what+" names a file, by its whole path", example)
	}
	return path
}

// loadRoots reads the certificates that the file names.
func (c *Ceiling) loadRoots() (err error) {
	if c.RootsFile == "" {
		return nil
	}
	if c.Roots, err = os.ReadFile(c.RootsFile); err != nil {
		return fmt.Errorf("read the roots of the ceiling: %w", err)
	}
	if !x509.NewCertPool().AppendCertsFromPEM(c.Roots) {
		return fmt.Errorf("read the roots of the ceiling: %s has no certificate", c.RootsFile)
	}
	return nil
}

func allPorts(mail bool) right.Ports {
	ranges := []right.PortRange{{First: 1, Last: 65535}}
	if mail {
		for _, p := range []uint16{25, 465, 587} {
			ranges = append(ranges, right.PortRange{First: p, Last: p})
		}
	}
	ps, _ := right.NewPorts(ranges...) // constant, and valid
	return ps
}
