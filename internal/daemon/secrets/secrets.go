// Package secrets reads the values of the secrets of cells where their profiles say, and
// passes them to the cells' boxes (boundary.md, B120, B131).
//
// Its laws:
//   - A source is opened by the one who runs the cell, and is a descriptor here (L6b). What
//     stands in its place later is read only if it has the same owner.
//   - A value is read into memory that is overwritten once the box's parcel is made. It is
//     in no error, no entry and no log.
//   - What cannot be read, or is no value, is no value from then on: the box says so.
package secrets

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/internal/handover"
	"skep.dev/skep/internal/handover/bequest"
	"skep.dev/skep/internal/secret"
	"skep.dev/skep/internal/secret/listed"
	"skep.dev/skep/internal/secret/parcel"
)

var errClosed = errors.New("the cell has ended")

// Cell has the bindings of one cell with its placeholders, and their sources. A nil Cell
// has none. It is safe for concurrent use.
type Cell struct {
	bound []secret.Bound

	giving  sync.Mutex // around each giving of values: what is read last is given last
	mu      sync.Mutex
	sources map[string]*source // nil once it is closed
}

// Take makes what a cell has of the profile's secrets and of what the caller of the run
// handed over. The caller closes it.
func Take(list []listed.Secret, b *handover.Bundle) (*Cell, error) {
	if len(list) == 0 {
		return nil, nil
	}
	c := &Cell{}
	for _, s := range list {
		c.bound = append(c.bound, secret.Bound{Binding: s.Binding, Placeholder: s.NewPlaceholder()})
	}
	var err error
	if c.sources, err = c.take(b); err != nil {
		return nil, err
	}
	return c, nil
}

// take is every source of the cell as it was handed over.
func (c *Cell) take(b *handover.Bundle) (map[string]*source, error) {
	all := map[string]*source{}
	for _, s := range c.bound {
		from := &source{file: b.Take(handover.RoleSecret, s.Name)}
		if from.file != nil {
			all[s.Name] = from
			from.dir, from.name = dirOf(b, s.Name)
		}
		if from.file == nil || s.Source.File != "" && from.dir == nil {
			closeAll(all)
			return nil, fmt.Errorf("no descriptors came for the source of secret %q", s.Name)
		}
	}
	return all, nil
}

// Retake has the sources be what was handed over now.
func (c *Cell) Retake(b *handover.Bundle) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sources == nil {
		return errClosed
	}
	all, err := c.take(b)
	if err != nil {
		return err
	}
	closeAll(c.sources)
	c.sources = all
	return nil
}

// Sources are the names of the secrets, and where their values are read.
func (c *Cell) Sources() (out []*skepv1.SecretSource) {
	if c == nil {
		return nil
	}
	for _, b := range c.bound {
		out = append(out, &skepv1.SecretSource{Name: b.Name, Source: b.Source.String()})
	}
	return out
}

func closeAll(all map[string]*source) {
	for _, s := range all {
		s.close()
	}
}

// dirOf is the directory of a source, and its name there.
func dirOf(b *handover.Bundle, name string) (*os.File, string) {
	for _, r := range b.Roles {
		of, entry, ok := strings.Cut(r.Path, "/")
		if r.Role == handover.RoleDir && ok && of == name && entry != "" && !strings.Contains(entry, "/") {
			return b.Take(r.Role, r.Path), entry
		}
	}
	return nil, ""
}

// Close gives the sources back.
func (c *Cell) Close() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	closeAll(c.sources)
	c.sources = nil
}

// Wire is the bindings as the box has them (B121).
func (c *Cell) Wire() (out []*skepv1.BoxSecret) {
	if c == nil {
		return nil
	}
	for _, b := range c.bound {
		w := &skepv1.BoxSecret{Name: b.Name, Hosts: b.Hosts, Path: b.Path, Set: b.Set, End: b.End, Placeholder: b.Placeholder}
		for _, p := range b.Ports {
			w.Ports = append(w.Ports, uint32(p))
		}
		for _, p := range b.As {
			w.As = append(w.As, p.String())
		}
		out = append(out, w)
	}
	return out
}

// Bound is the bindings without their sources, for a box.
func (c *Cell) Bound() []secret.Bound {
	if c == nil {
		return nil
	}
	out := slices.Clone(c.bound)
	for i := range out {
		out[i].Source = secret.Source{}
	}
	return out
}

// Placeholders are by the names of the secrets.
func (c *Cell) Placeholders() map[string]string {
	if c == nil {
		return nil
	}
	out := map[string]string{}
	for _, b := range c.bound {
		out[b.Name] = b.Placeholder
	}
	return out
}

// Variables are the agent's variables that hold placeholders.
func (c *Cell) Variables() map[string]string {
	out := map[string]string{}
	if c != nil {
		for _, b := range c.bound {
			if b.Env != "" {
				out[b.Env] = b.Placeholder
			}
		}
	}
	return out
}

// gitCount begins the variables by which git is configured (git-config(1)).
const gitCount = "GIT_CONFIG_COUNT"

// Git has git say the placeholder where a host with basic credentials asks for them, so that
// nothing has to be installed; nothing where the agent's own env configures git so.
func (c *Cell) Git(env ...map[string]string) map[string]string {
	out, n := map[string]string{}, 0
	if c == nil || slices.ContainsFunc(env, func(e map[string]string) bool { return e[gitCount] != "" }) {
		return out
	}
	for _, b := range c.bound {
		if !slices.Contains(b.As, secret.Place{Kind: secret.Basic}) {
			continue
		}
		for _, host := range b.Hosts {
			for _, port := range b.Ports {
				at := "https://" + host
				if port != 443 {
					at = fmt.Sprintf("%s:%d", at, port)
				}
				out[fmt.Sprintf("GIT_CONFIG_KEY_%d", n)] = "credential." + at + ".helper"
				out[fmt.Sprintf("GIT_CONFIG_VALUE_%d", n)] = `!f() { test "$1" = get && printf 'username=x-access-token\npassword=` + b.Placeholder + `\n'; }; f`
				n++
			}
		}
	}
	if n > 0 {
		out[gitCount] = fmt.Sprint(n)
	}
	return out
}

// Changed tells whether a source has another content than what was read last, or none.
func (c *Cell) Changed() bool {
	if c == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.sources {
		if s.changed() {
			return true
		}
	}
	return false
}

// Read reads every source and makes the box's parcel, which the caller closes. A value that
// cannot be read is not in it; the error says which, beside the parcel of the others.
func (c *Cell) Read() (*os.File, error) {
	var items []parcel.Item
	var faults []error
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sources == nil {
		return nil, errClosed
	}
	for _, b := range c.bound {
		value, until, err := c.sources[b.Name].read()
		if err != nil {
			faults = append(faults, fmt.Errorf("the value of secret %q from %s: %w", b.Name, b.Source, err))
			continue
		}
		items = append(items, parcel.Item{Name: b.Name, Value: value, Until: until})
	}
	f, err := parcel.Pack(items)
	if err != nil {
		return nil, err
	}
	return f, errors.Join(faults...)
}

// Left is what another skepd needs to go on (L20a): no value.
type Left struct {
	Placeholders map[string]string `json:"placeholders"`
	Files        map[string]Place  `json:"files"`
}

// Place is one source.
type Place struct {
	File bequest.FD `json:"file"`
	Dir  bequest.FD `json:"dir,omitempty"`
	Name string     `json:"name,omitempty"`
}

// Leave describes it, nil where there is none.
func (c *Cell) Leave(e *bequest.Estate) *Left {
	if c == nil {
		return nil
	}
	l := &Left{Placeholders: map[string]string{}, Files: map[string]Place{}}
	for _, b := range c.bound {
		s := c.sources[b.Name]
		p := Place{File: e.Leave(s.file), Name: s.name}
		if s.dir != nil {
			p.Dir = e.Leave(s.dir)
		}
		l.Placeholders[b.Name], l.Files[b.Name] = b.Placeholder, p
	}
	return l
}

// Inherit goes on with what another skepd left of the profile's secrets.
func Inherit(list []listed.Secret, l *Left, h *bequest.Heir) (*Cell, error) {
	if len(list) == 0 {
		return nil, nil
	}
	if l == nil {
		return nil, errors.New("its secrets were not left")
	}
	c := &Cell{sources: map[string]*source{}}
	for _, s := range list {
		mark, place := l.Placeholders[s.Name], l.Files[s.Name]
		c.bound = append(c.bound, secret.Bound{Binding: s.Binding, Placeholder: mark})
		from := &source{file: h.Need(place.File, "secret"), name: place.Name}
		if place.Name != "" {
			from.dir = h.Need(place.Dir, "secret-dir")
		}
		c.sources[s.Name] = from
	}
	return c, h.Err()
}

// Named tells whether the cell has a secret of the name.
func (c *Cell) Named(name string) bool {
	return c != nil && slices.ContainsFunc(c.bound, func(b secret.Bound) bool { return b.Name == name })
}
