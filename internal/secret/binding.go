package secret

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"skep.dev/skep/internal/name"
	"skep.dev/skep/internal/right/request"
)

const (
	prefix  = "skep-secret-"
	maxName = 64
	letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	digits  = "0123456789"
	hexes   = 8 // digits at a placeholder's end

	// maxPlaceholder is the longest one, in bytes.
	maxPlaceholder = len(prefix) + maxName + 1 + hexes
)

// Source names where a value is read, never the value. Exactly one is set.
type Source struct {
	File string // a path
	Env  string // a variable of whoever starts the cell
}

// ParseSource takes "file:PATH" or "env:NAME". Its errors repeat nothing of s, which may
// be the secret itself.
func ParseSource(s string) (Source, error) {
	kind, of, _ := strings.Cut(s, ":")
	switch {
	case kind == "file" && of != "" && !strings.ContainsRune(of, 0):
		return Source{File: of}, nil
	case kind == "env" && isVariable(of):
		return Source{Env: of}, nil
	}
	return Source{}, errors.New("a source is file:PATH or env:NAME; it says where the secret is and never is the secret")
}

// String is what ParseSource takes.
func (s Source) String() string {
	if s.File != "" {
		return "file:" + s.File
	}
	return "env:" + s.Env
}

// Binding is one secret and where it may go (B121).
type Binding struct {
	Name   string
	Source Source
	Env    string   // the variable of the cell that has the placeholder; "" for none
	Hosts  []string // exact names in their one form
	Ports  []uint16
	Path   string // the whole of a request's, or its beginning up to a slash
	As     []Place
	Set    bool // the one header of As is written over instead of filled in
	End    bool // a misuse ends the cell
}

// NewBinding fills in what may be left out, the port 443 and the path /, and brings the
// rest to its one form, or says what is wrong.
func NewBinding(b Binding) (Binding, error) {
	b, err := b.normal()
	if err == nil && (b.Source.File == "") == (b.Source.Env == "") {
		return Binding{}, fmt.Errorf("secret %q: want one source", b.Name)
	}
	return b, err
}

// normal is NewBinding without a look at the source, of which a box knows nothing.
func (b Binding) normal() (Binding, error) {
	fail := func(format string, args ...any) (Binding, error) {
		return Binding{}, fmt.Errorf("secret %q: "+format, append([]any{b.Name}, args...)...)
	}
	if b.Name == "" || len(b.Name) > maxName || strings.Trim(b.Name, letters+digits+"_-") != "" {
		return Binding{}, fmt.Errorf("the name of a secret has 1 to %d letters, digits, _ and -", maxName)
	}
	if probe := prefix + b.Name + "-00000000"; first([]byte(probe)) != probe {
		return fail("a name does not have - and eight hexadecimal digits in it: placeholders end so")
	}
	if b.Env != "" && !isVariable(b.Env) {
		return fail("env %q is no name of a variable", b.Env)
	}
	var hosts []string
	for _, h := range b.Hosts {
		normal, err := name.Host(h)
		if err != nil {
			return fail("want exact host names: %w", err)
		}
		hosts = append(hosts, normal)
	}
	slices.Sort(hosts)
	if b.Hosts = slices.Compact(hosts); len(b.Hosts) == 0 {
		return fail("want hosts: a secret goes to named hosts only")
	}
	if len(b.Ports) == 0 {
		b.Ports = []uint16{443}
	}
	ports := slices.Sorted(slices.Values(b.Ports))
	if b.Ports = slices.Compact(ports); ports[0] == 0 {
		return fail("want ports from 1 to 65535")
	}
	if b.Path == "" {
		b.Path = "/"
	}
	if err := request.Check(nil, []string{b.Path}, false); err != nil || strings.Contains(b.Path, "*") {
		return fail("path %q: want the beginning of a path from the first /, without * and a query", b.Path)
	}
	return b.withPlaces()
}

func (b Binding) withPlaces() (Binding, error) {
	b.As = slices.Compact(slices.SortedFunc(slices.Values(b.As), func(x, y Place) int { return strings.Compare(x.String(), y.String()) }))
	if len(b.As) == 0 {
		return Binding{}, fmt.Errorf("secret %q: want the places in as, for example as: [bearer]", b.Name)
	}
	for _, p := range b.As {
		if again, err := ParsePlace(p.String()); err != nil || again != p {
			return Binding{}, errors.Join(fmt.Errorf("secret %q: a place that is none", b.Name), err)
		}
	}
	if b.Set && (len(b.As) != 1 || b.As[0].Kind != Bearer && b.As[0].Kind != Header) {
		return Binding{}, fmt.Errorf("secret %q: set: true writes over one header: want as: [bearer] or [header:NAME] alone", b.Name)
	}
	return b, nil
}

func isVariable(s string) bool {
	return s != "" && len(s) <= 128 && strings.Trim(s, letters+digits+"_") == "" && !strings.ContainsRune(digits, rune(s[0]))
}

// NewPlaceholder draws what a cell has in place of the secret (B120).
func (b Binding) NewPlaceholder() string {
	var random [hexes / 2]byte
	rand.Read(random[:])
	return prefix + b.Name + "-" + hex.EncodeToString(random[:])
}

// At is the destination of a request.
type At struct {
	Host string // in its one form
	Port uint16
	Path string // as it stands, without the query
}

// covers tells whether the binding is for a destination. A path that two servers could
// read as two is below no path but /.
func (b Binding) covers(at At) bool {
	if !slices.Contains(b.Hosts, at.Host) || !slices.Contains(b.Ports, at.Port) {
		return false
	}
	if b.Path == "/" {
		return true
	}
	if request.KindOfPath(at.Path) != request.PlainPath {
		return false
	}
	rest, below := strings.CutPrefix(at.Path, b.Path)
	return below && (rest == "" || rest[0] == '/' || strings.HasSuffix(b.Path, "/"))
}

// has tells whether the binding names the place.
func (b Binding) has(p Place) bool { return slices.Contains(b.As, p) }
