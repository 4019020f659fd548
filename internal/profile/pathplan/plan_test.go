package pathplan

import (
	"fmt"
	"path"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"skep.dev/skep/internal/profile"
	"skep.dev/skep/internal/right"
)

// tree is a host in memory: each path is "dir", "file", "socket" or "-> target".
// Missing parents are directories.
type tree map[string]string

func newTree(lines string) tree {
	t := tree{"/": "dir"}
	for line := range strings.Lines(lines) {
		name, what, _ := strings.Cut(strings.TrimSpace(line), " ")
		if name == "" {
			continue
		}
		if what == "" {
			what = "dir"
		}
		t[name] = what
		for dir := path.Dir(name); dir != "/"; dir = path.Dir(dir) {
			if _, ok := t[dir]; !ok {
				t[dir] = "dir"
			}
		}
	}
	return t
}

func (t tree) Lstat(name string) (Kind, error) {
	what := t[name]
	switch {
	case strings.HasPrefix(what, "-> "):
		return Symlink, nil
	case what == "denied":
		return Absent, fmt.Errorf("permission denied")
	}
	return map[string]Kind{"dir": Dir, "file": File, "socket": Other}[what], nil
}

func (t tree) Readlink(name string) (string, error) { return strings.TrimPrefix(t[name], "-> "), nil }

const machine = `
/home/ada/work/.git/hooks
/home/ada/work/.git/config file
/home/ada/work/src/main.go file
/home/ada/work/bin/skep file
/home/ada/work/agent.sock socket
/home/ada/work/keys -> ../.ssh
/home/ada/work/state -> /home/ada/.local/state/skep
/home/ada/work/tools -> /opt/tools
/home/ada/.ssh/known_hosts file
/home/ada/.bashrc -> dotfiles/bashrc
/home/ada/dotfiles/bashrc file
/home/ada/.config/autostart
/home/ada/.local/share/keyrings
/home/ada/.local/state/skep/keys
/home/ada/.gitconfig file
/home/ada/work/hook -> .git/hooks/sub
/home/ada/work/.git/hooks/sub
/home/ada/shared -> /opt/tools
/opt/tools
/usr/bin/make file
/usr/lib/x file
/bin -> usr/bin
/lib -> usr/lib
/loop -> /loop
/closed denied
`

func plan(t *testing.T, yaml string) (*Plan, string) {
	t.Helper()
	p, faults := profile.ParseAt("p.yaml", profile.Place{Dir: "/home/ada/work", Home: "/home/ada"}, []byte(yaml))
	if faults != nil {
		t.Fatal(faults.Render())
	}
	out, faults := Make(Input{
		Profile: p, Homes: []string{"/home/ada"}, Programs: []string{"/home/ada/work/bin"},
		Own: []string{"/home/ada/.local/state/skep", "/run/skep", "/home/ada/.config/skep"},
	}, newTree(machine))
	return out, faults.Error()
}

func text(p *Plan) string {
	var b strings.Builder
	for _, m := range p.Mounts {
		mode := "ro"
		if m.Writable {
			mode = "rw"
		}
		if m.Kind == Hide {
			mode = "--"
		}
		fmt.Fprintf(&b, "%s %s %s\n", m.Kind, mode, m.Path)
	}
	for _, l := range p.Links {
		fmt.Fprintf(&b, "link %s -> %s\n", l.Path, l.Target)
	}
	return b.String()
}

func TestMounts(t *testing.T) {
	for _, c := range []struct{ name, yaml, want string }{
		{"the narrower rule under the wider one holds (L8)",
			`paths: [{path: ., rights: rw}, {path: .git/hooks, rights: ro}, {path: .git/config, rights: ro}]`, `
grant rw /home/ada/work
point rw /home/ada/work/.git
protect ro /home/ada/work/.git/config
protect ro /home/ada/work/.git/hooks
`},
		{"what a rule names but is not there has no mount",
			`paths: [{path: ., rights: rw}, {path: .git/info/deep, rights: ro}]`, `
grant rw /home/ada/work
`},
		{"links on the way are made in the cell's root",
			`paths: [{path: /usr, rights: ro}, {path: /bin, rights: ro}, {path: /lib, rights: ro}]`, `
grant ro /usr
link /bin -> usr/bin
link /lib -> usr/lib
`},
		{"a writable part of a read-only tree needs no points",
			`paths: [{path: ~/work, rights: ro}, {path: ~/work/.git/hooks, rights: rw}]`, `
grant ro /home/ada/work
grant rw /home/ada/work/.git/hooks
`},
		{"taken away, and a part given back",
			`paths: [{path: ., rights: rw}, {path: .git, rights: none}, {path: .git/hooks, rights: ro}]`, `
grant rw /home/ada/work
hide -- /home/ada/work/.git
grant ro /home/ada/work/.git/hooks
`},
		{"a home: ours and what is private is hidden, and every directory on the way is held (F11)",
			`paths: [{path: ~/, rights: rw}]`, `
grant rw /home/ada
point rw /home/ada/.config
hide -- /home/ada/.config/autostart
point rw /home/ada/.local
point rw /home/ada/.local/share
hide -- /home/ada/.local/share/keyrings
point rw /home/ada/.local/state
hide -- /home/ada/.local/state/skep
hide -- /home/ada/.ssh
point rw /home/ada/dotfiles
hide -- /home/ada/dotfiles/bashrc
`},
		{"a private place that is named is shown",
			`paths: [{path: ~/, rights: ro}, {path: ~/.ssh/known_hosts, rights: ro}, {path: ~/.bashrc, rights: ro}]`, `
grant ro /home/ada
hide -- /home/ada/.config/autostart
hide -- /home/ada/.local/share/keyrings
hide -- /home/ada/.local/state/skep
hide -- /home/ada/.ssh
grant ro /home/ada/.ssh/known_hosts
`},
		{"a single file", `paths: [{path: ~/.gitconfig, rights: rw}]`, `
grant rw /home/ada/.gitconfig
`},
		{"a tree that holds our programs may be writable",
			`paths: [{path: ~/work, rights: rw}, {path: ~/work/bin, rights: ro}]`, `
grant rw /home/ada/work
protect ro /home/ada/work/bin
`},
		{"and so may what is in it then",
			`paths: [{path: ~/work, rights: rw}, {path: ~/work/bin, rights: rw}]`, `
grant rw /home/ada/work
`},
		{"a link elsewhere is followed",
			`paths: [{path: ~/shared, rights: ro}]`, `
grant ro /opt/tools
link /home/ada/shared -> /opt/tools
`},
	} {
		p, faults := plan(t, c.yaml)
		if faults != "" {
			t.Errorf("%s: %s", c.name, faults)
			continue
		}
		if diff := cmp.Diff(strings.TrimPrefix(c.want, "\n"), text(p)); diff != "" {
			t.Errorf("%s:\n%s", c.name, diff)
		}
	}
}

func TestRefused(t *testing.T) {
	for _, c := range []struct{ entry, want string }{
		{"{path: ~/.local/state/skep, rights: ro}", "Skep's own directory"},
		{"{path: ~/.local/state/skep/keys, rights: ro}", "Skep's own directory"},
		{"{path: ~/.config/skep/config.yaml, rights: rw}", "Skep's own directory"}, // not there yet
		{"{path: ./state, rights: ro}", "Skep's own directory"},                    // through a symlink
		{"{path: ./state/keys, rights: ro}", "Skep's own directory"},
		{"{path: ./keys, rights: ro}", "is a symlink to /home/ada/.ssh, which is private"},
		{"{path: ./keys/known_hosts, rights: ro}", "which is private"},
		{"{path: ./tools, rights: rw}", "leads out of the profile's directory, to /opt/tools"},
		{"{path: ~/work/tools/x, rights: rw}", "leads out of the profile's directory, to /opt/tools/x"},
		{"{path: ./bin, rights: rw}", "Skep's programs"},
		{"{path: ./bin/skepd, rights: rw}", "Skep's programs"},
		{"{path: ./bin/new/deep, rights: rw}", "Skep's programs"},             // not there yet
		{"{path: ./agent.sock, rights: rw}", "not a plain file or directory"}, // L15
		{"{path: /loop, rights: ro}", "more than 40 symlinks"},
		{"{path: /closed, rights: ro}", "permission denied"},
	} {
		p, faults := plan(t, "paths:\n  - {path: /usr, rights: ro}\n  - "+c.entry+"\n")
		if p != nil || !strings.Contains(faults, c.want) || !strings.HasPrefix(faults, "p.yaml:3:") {
			t.Errorf("%s: %q, want %q in line 3", c.entry, faults, c.want)
		}
	}
	_, faults := plan(t, "paths: [{path: /bin, rights: rw}, {path: /usr/bin, rights: ro}]")
	if !strings.Contains(faults, "keep one of the two") {
		t.Errorf("one directory under two names: %q", faults)
	}
}

// What a cell makes where nothing was is judged like the rest (L8, F20): the
// hooks and config that do not exist yet are the attack.
func TestWritable(t *testing.T) {
	p, faults := plan(t, `paths: [{path: ~/, rights: rw}, {path: ./.git/hooks, rights: ro}, {path: ./.git/info, rights: ro}, {path: ./.skep.yaml, rights: ro}]`)
	if faults != "" {
		t.Fatal(faults)
	}
	for name, want := range map[string]bool{
		"/home/ada/work/src/new.go":           true,
		"/home/ada/work/.git/index":           true,
		"/home/ada/work/.git/hooks/pre-push":  false,
		"/home/ada/work/.git/info/attributes": false, // not there at start
		"/home/ada/work/.skep.yaml":           false,
		"/home/ada/.config/skep/config.yaml":  false, // ours, not there at start
		"/home/ada/.config/chromium/x":        false, // private, not there at start
		"/home/ada/.ssh/authorized_keys":      false,
		"/home/ada/.bashrc":                   false, // the link
		"/home/ada/dotfiles/bashrc":           false, // where it leads
		"/home/ada/.bashrc.d":                 true,
		"/etc/passwd":                         false,
		"/home/adam":                          false,
	} {
		if got := p.Writable(name); got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	if len(p.Missing) != 2 {
		t.Errorf("missing: %+v", p.Missing)
	}
}

// A home that is reached through a symlink is as private as any other.
func TestHomeBehindSymlink(t *testing.T) {
	host := newTree("/data/homes/ada/.ssh\n/home -> data/homes\n")
	p, faults := profile.ParseAt("p.yaml", profile.Place{Dir: "/", Home: "/home/ada"},
		[]byte("paths: [{path: ~/, rights: rw}]"))
	if faults != nil {
		t.Fatal(faults)
	}
	got, faults := Make(Input{Profile: p, Homes: []string{"/home/ada"}}, host)
	if faults != nil {
		t.Fatal(faults)
	}
	want := "grant rw /data/homes/ada\nhide -- /data/homes/ada/.ssh\nlink /home -> data/homes\n"
	if text(got) != want || got.Writable("/data/homes/ada/.ssh/x") {
		t.Errorf("got:\n%s", text(got))
	}
}

// For any rules, the mounts give exactly what the rules say: the innermost
// mount of an existing path has its rights, and no directory between a
// protected path and the writable grant around it can be renamed.
func TestMountsAgreeWithRules(t *testing.T) {
	host := newTree("/a/b/c file\n/a/b/d\n/a/e\n/f/g\n/f/h -> /a/e\n")
	places := []string{"/a", "/a/b", "/a/b/c", "/a/b/d", "/a/e", "/a/new", "/f", "/f/g", "/f/h"}
	rapid.Check(t, func(t *rapid.T) {
		chosen := rapid.SliceOfNDistinct(rapid.SampledFrom(places), 1, 5, rapid.ID[string]).Draw(t, "places")
		var yaml strings.Builder
		yaml.WriteString("paths:\n")
		for _, at := range chosen {
			fmt.Fprintf(&yaml, "  - {path: %s, rights: %s}\n", at, rapid.SampledFrom([]string{"ro", "rw", "none"}).Draw(t, "rights"))
		}
		p, faults := profile.ParseAt("p.yaml", profile.Place{Dir: "/"}, []byte(yaml.String()))
		if faults != nil {
			t.Fatal(faults)
		}
		got, faults := Make(Input{Profile: p}, host)
		if faults != nil {
			return // one directory under two names
		}
		for at, what := range host {
			if what != "dir" && what != "file" {
				continue
			}
			if seen, want := byMounts(got.Mounts, at), got.At(at); seen != want {
				t.Fatalf("%s%s: mounts give %s, rules %s\n%s", yaml.String(), at, seen, want, text(got))
			}
		}
		for i, m := range got.Mounts {
			if i == 0 || m.Kind == Grant && !inWritable(got.Mounts, m.Path) {
				continue
			}
			if !heldByParent(got.Mounts, m.Path) {
				t.Fatalf("%s%s can be renamed away\n%s", yaml.String(), m.Path, text(got))
			}
		}
	})
}

func innermost(mounts []Mount, at string) (Mount, bool) {
	var best Mount
	found := false
	for _, m := range mounts { // parents first
		if right.Contains(m.Path, at) {
			best, found = m, true
		}
	}
	return best, found
}

func byMounts(mounts []Mount, at string) right.Access {
	m, ok := innermost(mounts, at)
	switch {
	case !ok || m.Kind == Hide:
		return 0
	case m.Writable:
		return right.Read | right.Write | right.Execute
	}
	return right.Read | right.Execute
}

func inWritable(mounts []Mount, at string) bool {
	m, ok := innermost(mounts, path.Dir(at))
	return ok && m.Writable
}

// heldByParent: the directory around a mount is a mount point itself, or in
// one that is not writable.
func heldByParent(mounts []Mount, at string) bool {
	m, ok := innermost(mounts, path.Dir(at))
	return !ok || !m.Writable || m.Path == path.Dir(at)
}

// F20: a repository's own profile grants a link to what the base protects.
func TestNarrowingThroughLinks(t *testing.T) {
	at := profile.Place{Dir: "/home/ada/work", Home: "/home/ada"}
	base, err := profile.Shipped(profile.Default, at)
	if err != nil {
		t.Fatal(err)
	}
	for entry, want := range map[string]string{
		"{path: ./hook, rights: rw}":  "/home/ada/work/.git/hooks/sub (rwx) is wider than coding-agent allows",
		"{path: ./tools, rights: rw}": "leads out of the profile's directory",
		"{path: ./keys, rights: rw}":  "which is private",
		"{path: ./keys, rights: ro}":  "", // takes away a link, and grants nothing
		"{path: ./src, rights: ro}":   "",
	} {
		found, faults := profile.ParseAt(".skep.yaml", at, []byte("paths: ["+entry+"]"))
		if faults != nil {
			t.Fatal(faults)
		}
		narrowed, faults := profile.Narrow(base, found)
		if faults != nil {
			t.Fatal(faults) // as written each is narrower
		}
		p, faults := Make(Input{Profile: narrowed, Homes: []string{"/home/ada"}}, newTree(machine))
		name := strings.TrimSuffix(strings.TrimPrefix(entry, "{path: ."), ", rights: ro}")
		switch got := faults.Error(); {
		case want == "" && (p == nil || p.Writable("/home/ada/work"+name+"/x") || p.At("/home/ada/.ssh") != 0):
			t.Errorf("%s: %s", entry, got)
		case want != "" && (p != nil || !strings.Contains(got, want) || !strings.HasPrefix(got, ".skep.yaml:1:")):
			t.Errorf("%s: %q, want %q", entry, got, want)
		}
	}
}

// A repository whose .git is a link: inside the tree what it leads to is
// protected; outside nothing is granted. Either way nothing that a cell puts in
// the link's place is applied.
func TestProtectedPathThroughLink(t *testing.T) {
	at := profile.Place{Dir: "/home/ada/work", Home: "/home/ada"}
	for target, want := range map[string]string{
		"real":       "grant rw /home/ada/work\npoint rw /home/ada/work/real\nprotect ro /home/ada/work/real/hooks\n",
		"../modules": "grant rw /home/ada/work\n",
	} {
		host := newTree("/home/ada/work/real/hooks\n/home/ada/modules/hooks\n/home/ada/work/.git -> " + target)
		p, faults := profile.ParseAt("p.yaml", at, []byte("paths: [{path: ., rights: rw}, {path: ./.git/hooks, rights: ro}]"))
		if faults != nil {
			t.Fatal(faults)
		}
		got, faults := Make(Input{Profile: p, Homes: []string{"/home/ada"}}, host)
		if faults != nil {
			t.Fatal(faults)
		}
		if text(got) != want {
			t.Errorf("%s:\n%s", target, text(got))
		}
		for _, name := range []string{"/home/ada/work/.git/hooks/x", "/home/ada/work/real/hooks/x"} {
			if got.Writable(name) && !(target == "../modules" && strings.Contains(name, "real")) {
				t.Errorf("%s: %s is writable", target, name)
			}
		}
	}
}
