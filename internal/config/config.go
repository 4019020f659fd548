package config

import (
	"fmt"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"

	"skep.dev/skep/internal/strict"
)

// Faults is all that is wrong with a file.
type Faults = strict.Faults

// TargetKind is what answers for a role.
type TargetKind int

// The kinds of MG2 that this build has.
const (
	Script TargetKind = iota + 1 // a scripted model (MG11)
	OpenAI                       // an OpenAI-compatible URL
)

// Target is one entry of `targets:`.
type Target struct {
	Name   string
	Kind   TargetKind
	Script string   // absolute path, of Script
	URL    *url.URL // of OpenAI
	Key    string   // absolute path of the file that has it, of OpenAI; "" sends no key
	Remote Remote   // of OpenAI
	Line   int
}

// Remote is what has to be known of a provider beside its address. The zero
// Remote is a provider of the published API that names its models as we do.
type Remote struct {
	Model        string // the provider's name of the model; the role's if ""
	LimitField   string // the field that bounds an answer; max_tokens if ""
	NoUsageChunk bool   // it refuses to be asked for usage at a stream's end
	MaxOutput    int64  // tokens, where a call names none; 0 is not known
	IdleMillis   int64  // between two events of a stream; 0 is the default
	Price        *Price // nil is not known: a budget of money then refuses it
}

// Price is in micro-dollars for a million tokens. Nil costs what its kind does.
type Price struct {
	Version           string
	Input, Output     int64
	Cached, Reasoning *int64
}

// Role is one entry of `roles:`: names of targets in the order of trial.
type Role struct {
	Name    string
	Targets []string
	Line    int
}

// Config is config.yaml. The zero Config has no model.
type Config struct {
	File    string
	Targets []Target // in the order of the file
	Roles   []Role
	Metrics string // absolute path of a socket; "" serves none (B200)
}

// Target gives a target by name.
func (c *Config) Target(name string) (Target, bool) {
	for _, t := range c.Targets {
		if t.Name == name {
			return t, true
		}
	}
	return Target{}, false
}

// Role gives a role by name.
func (c *Config) Role(name string) (Role, bool) {
	for _, r := range c.Roles {
		if r.Name == name {
			return r, true
		}
	}
	return Role{}, false
}

var word = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:/-]{0,127}$`)

type reader struct {
	*strict.Report
	c   *Config
	dir string
}

// Parse reads a config.yaml. Relative script files begin at its directory.
func Parse(file string, src []byte) (*Config, Faults) {
	root, r := strict.Read(file, src)
	c := &Config{File: file}
	if root != nil {
		reader{r, c, filepath.Dir(file)}.all(root)
	}
	if faults := r.Faults(); faults != nil {
		return nil, faults
	}
	return c, nil
}

func (r reader) all(root *strict.Node) {
	f, ok := r.Fields(root, "the config", "targets: {...}", []string{"version", "targets", "roles", "servers", "metrics"})
	if !ok {
		return
	}
	if v, ok := f["version"]; ok {
		r.OneOf(v, "version", "v1")
	}
	if v, ok := f["servers"]; ok {
		r.Unsupported(v.Pos, "servers", "servers") // MG7
	}
	if v, ok := f["metrics"]; ok {
		r.c.Metrics, _ = r.Str(v, "metrics", "/run/skep-metrics/socket")
		if !filepath.IsAbs(r.c.Metrics) {
			r.Fault(v, "metrics is the path of a socket, from the root", "for example metrics: /run/skep-metrics/socket")
		}
	}
	if v, ok := f["targets"]; ok {
		r.each(v, "targets", "{demo: {script: FILE}}", r.target)
	}
	if v, ok := f["roles"]; ok {
		r.each(v, "roles", "{coder: [demo]}", r.role)
	}
}

// each walks a mapping whose keys are names that the operator chose.
func (r reader) each(n *strict.Node, what, example string, read func(strict.Field)) {
	if n.Kind != strict.Map {
		r.Fields(n, what, example, nil) // says what is wrong
		return
	}
	for _, f := range n.Fields {
		if !word.MatchString(f.Key) {
			r.Add(f.At, f.Key, fmt.Sprintf("%q cannot be a name in %s", f.Key, what), "use letters, digits and ._:/-")
			continue
		}
		read(f)
	}
}

func (r reader) target(f strict.Field) {
	what := "target " + f.Key
	keys, ok := r.Fields(f.Value, what, "{script: FILE}, or {openai: URL, key: file:PATH}", append([]string{"script", "openai"}, remoteKeys()...))
	if !ok {
		return
	}
	t := Target{Name: f.Key, Line: f.At.Line}
	script, isScript := keys["script"]
	openai, isOpenAI := keys["openai"]
	switch {
	case isScript == isOpenAI:
		r.Add(f.At, f.Key, what+" needs exactly one of script and openai", "{script: FILE}, or {openai: URL, key: file:PATH}")
		return
	case isScript:
		t.Kind = Script
		t.Script = r.file(script, what+": script")
		for _, name := range remoteKeys() {
			if n, ok := keys[name]; ok {
				r.Fault(n, "a script needs no "+name, "remove it")
			}
		}
	default:
		t.Kind = OpenAI
		t.URL = r.url(openai)
		if n, ok := keys["key"]; ok {
			t.Key = r.key(n)
		}
		t.Remote = r.remote(keys)
	}
	r.c.Targets = append(r.c.Targets, t)
}

func (r reader) file(n *strict.Node, what string) string {
	s, ok := r.Str(n, what, "demo.yaml")
	if !ok {
		return ""
	}
	if !filepath.IsAbs(s) {
		s = filepath.Join(r.dir, s)
	}
	if !filepath.IsAbs(s) {
		r.Fault(n, what+" is relative, and the config's own directory is not known", "write the whole path")
	}
	return s
}

// url takes http or https with a host, and nothing that a request would carry
// along unseen: MG3 fixes host and path here and nowhere else.
func (r reader) url(n *strict.Node) *url.URL {
	const example = "https://api.openai.com/v1"
	s, ok := r.Str(n, "openai", example)
	if !ok {
		return nil
	}
	u, err := url.Parse(s)
	switch {
	case err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.Opaque != "":
		r.Fault(n, fmt.Sprintf("openai cannot be %q", s), "write a URL such as "+example)
	case u.User != nil:
		r.Fault(n, "a URL must not hold a password", "write key: file:PATH")
	case u.RawQuery != "" || u.Fragment != "":
		r.Fault(n, "a base URL has no ? and no #", "remove them")
	}
	return u
}

// key takes a file. A value is refused without being repeated: it may be a real key,
// and faults are printed. A variable cannot be one: skepd starts with none of anybody's.
func (r reader) key(n *strict.Node) string {
	const example = "file:/etc/skep/openai.key"
	s, ok := r.Str(n, "key", example)
	if !ok {
		return ""
	}
	scheme, value, _ := strings.Cut(s, ":")
	switch {
	case scheme == "file" && filepath.IsAbs(value):
		return filepath.Clean(value)
	case scheme == "env":
		r.Secret(n.Pos, "skepd reads no key from an environment, neither yours nor its own",
			`write the key into a file that only its user may read, and name that: "`+example+`"`)
	default:
		r.Secret(n.Pos, "key does not name a file", `name the file that has it: "`+example+`"`)
	}
	return ""
}

func (r reader) role(f strict.Field) {
	role := Role{Name: f.Key, Line: f.At.Line}
	for _, item := range r.Strs(f.Value, "role "+f.Key, "[demo]") {
		role.Targets = append(role.Targets, item.Text)
		if _, ok := r.c.Target(item.Text); !ok {
			r.Fault(item, fmt.Sprintf("role %s names the target %q, which is not there", f.Key, item.Text), "add it to targets")
		}
	}
	r.c.Roles = append(r.c.Roles, role)
}
