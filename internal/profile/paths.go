package profile

import (
	"fmt"
	"path/filepath"
	"strings"

	"skep.dev/skep/internal/right"
	"skep.dev/skep/internal/strict"
)

// rightsWords are the words of `rights:`. A narrower `none` hides (F11).
func rightsWords() map[string]right.Access {
	return map[string]right.Access{
		"ro":   right.Read | right.Execute,
		"rw":   right.Read | right.Write | right.Execute,
		"none": 0,
	}
}

const pathExample = "- {path: ., rights: rw}"

func (r parser) paths(n *strict.Node) {
	seen := map[string]int{}
	for _, item := range r.Items(n, "paths", pathExample) {
		f, ok := r.Fields(item, "an entry of paths", pathExample, sectionKeys()["paths[]"])
		if !ok {
			continue
		}
		rule := PathRule{File: r.p.File, Line: item.Line}
		good := false
		if v, ok := f["rights"]; ok {
			word, ok := r.OneOf(v, "rights", "ro", "rw", "none")
			rule.Access, good = rightsWords()[word], ok
		} else {
			r.Add(item.Pos, "", "an entry of paths has no rights", "add rights: ro (or rw, or none)")
		}
		v, ok := f["path"]
		if !ok {
			r.Add(item.Pos, "", "an entry of paths has no path", pathExample)
			continue
		}
		rule.At, ok = r.path(v)
		if !ok {
			continue
		}
		if line, twice := seen[rule.At]; twice {
			r.Fault(v, rule.At+" is ruled twice", fmt.Sprintf("line %d has it; keep one", line))
			continue
		}
		seen[rule.At] = item.Line
		if good {
			r.p.Paths = append(r.p.Paths, rule)
		}
	}
}

// path makes an entry absolute and refuses what can never be granted.
func (r parser) path(n *strict.Node) (string, bool) {
	s, ok := r.Str(n, "path", "./src")
	if !ok {
		return "", false
	}
	full, message, fix := r.absolute(s)
	if message == "" {
		message, fix = neverGranted(full)
	}
	if message == "" {
		if _, err := right.NewPath(full, 0); err != nil {
			message, fix = err.Error(), "grant the directory that holds it"
		}
	}
	if message != "" {
		r.Fault(n, message, fix)
		return "", false
	}
	return full, true
}

func (r parser) absolute(s string) (full, message, fix string) {
	switch {
	case strings.ContainsAny(s, "*?["):
		return "", fmt.Sprintf("path %q has a pattern", s), "paths are not patterns: a directory includes all below it"
	case strings.HasPrefix(s, "/"):
		return filepath.Clean(s), "", ""
	case s == "~" || strings.HasPrefix(s, "~/"):
		if !filepath.IsAbs(r.at.Home) {
			return "", "the home directory is not known here", "write the whole path"
		}
		return filepath.Join(r.at.Home, s[1:]), "", ""
	case strings.HasPrefix(s, "~"):
		return "", fmt.Sprintf("path %q names another user's home", s), "write the whole path"
	case strings.HasPrefix(s, "$"):
		return "", "variables are not expanded in a path", "write the path itself, or ~ for your home"
	case !filepath.IsAbs(r.at.Dir):
		return "", fmt.Sprintf("path %q is relative, and the profile's own directory is not known", s), "write the whole path"
	}
	return filepath.Join(r.at.Dir, s), "", ""
}

// neverGranted names what a cell has of its own, and the root of everything.
func neverGranted(full string) (message, fix string) {
	if full == "/" {
		return "the whole file system cannot be granted",
			"grant the directories by name, for example {path: /usr, rights: ro}"
	}
	for _, own := range []string{"/proc", "/sys", "/dev"} {
		if right.Contains(own, full) {
			return full + " cannot be granted: every cell has " + own + " of its own", "remove the entry"
		}
	}
	return "", ""
}
