package declared

import (
	"strconv"

	"skep.dev/skep/internal/flow/limit"
	"skep.dev/skep/internal/name"
	"skep.dev/skep/internal/strict"
)

// Serves is the one thing that an agent serves: itself, at a port of its own loopback that
// is fixed before it runs (boundary.md, B170).
type Serves struct {
	Name    string // what callers call it
	Port    uint16
	Forward bool // the caller's credentials are passed on, and what he sends need not be HTTP (B171)
	Line    int
}

// Other reports whether it is another thing, wherever it was written.
func (s Serves) Other(t Serves) bool {
	t.Line = s.Line
	return s != t
}

// ServesKeys are the keys of serves.
func ServesKeys() []string { return []string{"name", "port", "credentials"} }

// ReadServes reads it, nil after a fault.
func ReadServes(r *strict.Report, n *strict.Node) *Serves {
	const example = "serves: {name: reviewer-7, port: 8080}"
	before := r.Len()
	f, ok := r.Fields(n, "serves", example, ServesKeys())
	if !ok {
		return nil
	}
	s := &Serves{Line: n.Pos.Line}
	if v, ok := f["name"]; ok {
		s.Name, ok = r.Str(v, "the name that an agent serves by", "reviewer-7")
		if plain, err := name.Host(s.Name); ok && (err != nil || plain != s.Name) {
			r.Fault(v, "the name that an agent serves by is a host name in lower case", "for example reviewer-7")
		}
	} else {
		r.Add(n.Pos, "", "serves has no name", "write "+example)
	}
	if v, ok := f["port"]; ok {
		port, err := strconv.ParseUint(v.Text, 10, 16)
		s.Port = uint16(port)
		if v.Kind != strict.Int || err != nil || port == 0 {
			r.Fault(v, "the port that an agent serves is a number, 1 to 65535", "for example 8080")
		} else if err := limit.CheckServed(s.Port); err != nil {
			r.Fault(v, err.Error(), "serve another one, for example 8080")
		}
	} else {
		r.Add(n.Pos, "", "serves has no port", "write "+example)
	}
	if v, ok := f["credentials"]; ok {
		r.OneOf(v, "credentials", "strip", "forward")
		s.Forward = v.Text == "forward"
	}
	if r.Len() > before {
		return nil
	}
	return s
}
