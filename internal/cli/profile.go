package cli

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"skep.dev/skep/internal/cli/opened"
	"skep.dev/skep/internal/cli/terminal"
	"skep.dev/skep/internal/escape"
	"skep.dev/skep/internal/place"
	"skep.dev/skep/internal/profile"
	"skep.dev/skep/internal/profile/pathplan"
)

// foundName is the project's own file, which only narrows (L3).
const foundName = ".skep.yaml"

// chosen is the profile of a run, with where it came from.
type chosen struct {
	name, dir string
	source    []byte
	found     string // path of a narrowing file, or ""
	narrowing []byte
	profile   *profile.Profile // effective
	shipped   bool
}

// choose reads the profile that is named, or coding-agent narrowed by what the
// project says.
func choose(named, cwd string) (*chosen, error) {
	c := &chosen{dir: cwd}
	var err error
	switch {
	case named == "" || slices.Contains(profile.Names(), named):
		c.name, c.shipped = named, true
		if named == "" {
			c.name = profile.Default
		}
		c.source, err = profile.ShippedSource(c.name)
	default:
		if c.name, err = filepath.Abs(named); err == nil {
			c.dir = filepath.Dir(c.name)
			c.source, err = os.ReadFile(c.name)
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is no profile %s: name a file, or one that Skep ships (%s)", named, strings.Join(profile.Names(), ", "))
	}
	if err != nil {
		return nil, fmt.Errorf("read the profile: %w", err)
	}
	at := profile.Place{Dir: c.dir, Home: home()}
	p, faults := profile.ParseAt(c.name, at, c.source)
	if faults != nil {
		return nil, faults
	}
	c.profile = p
	if named != "" {
		return c, nil
	}
	return c, c.narrow(at, filepath.Join(cwd, foundName))
}

// narrow applies the project's file, if there is one.
func (c *chosen) narrow(at profile.Place, file string) error {
	src, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", file, err)
	}
	found, faults := profile.ParseAt(file, at, src)
	if faults != nil {
		return faults
	}
	p, faults := profile.Narrow(c.profile, found)
	if faults != nil {
		return faults
	}
	c.profile, c.found, c.narrowing = p, file, src
	return nil
}

// plan looks at the host's files. The links that it read are handed over too.
func (c *chosen) plan(p place.Places, programs string) (*pathplan.Plan, []string, error) {
	host := &opened.Host{}
	own := append(p.Dirs(), filepath.Join(home(), ".local/state/skep"), filepath.Join(home(), ".config/skep"))
	plan, faults := pathplan.Make(pathplan.Input{
		Profile: c.profile, Homes: []string{home()}, Own: own, Programs: []string{programs},
	}, host)
	if faults != nil {
		return nil, nil, faults
	}
	return plan, host.Links, nil
}

// confirm asks once for each digest of a profile that the user named (L3), and again
// where a path that it grants leads elsewhere than when it was confirmed: whoever
// writes to the tree makes its links.
func (a *App) confirm(c *chosen, yes bool) (how string, err error) {
	if c.shipped {
		return "shipped", nil
	}
	own, err := a.own()
	if err != nil {
		return "", err
	}
	file := filepath.Join(own, "confirmed", c.profile.Digest())
	leads := pathplan.Leads(c.profile, pathplan.OS{})
	before, err := os.ReadFile(file)
	_, confirmed, _ := strings.Cut(string(before), "\n") // after the profile's name
	moved := slices.DeleteFunc(slices.Clone(leads), func(line string) bool { return slices.Contains(strings.Split(confirmed, "\n"), line) })
	if err == nil && len(moved) == 0 {
		return "before", nil
	}
	if err == nil {
		fmt.Fprintf(a.Err, "not so when you confirmed %s: %s\n", escape.Line(c.name), escape.Line(strings.Join(moved, ", ")))
	}
	how = "flag"
	if !yes {
		if how, err = a.ask(c); err != nil {
			return "", err
		}
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return "", fmt.Errorf("keep the confirmation: %w", err)
	}
	text := strings.Join(append([]string{strconv.Quote(c.name)}, leads...), "\n") + "\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return "", fmt.Errorf("keep the confirmation: %w", err)
	}
	return how, nil
}

// ask shows the effective rights and takes an answer from the terminal.
func (a *App) ask(c *chosen) (string, error) {
	if !terminal.IsTerminal(a.In) {
		return "", fmt.Errorf("the rights of %s were not confirmed yet: read them with `skep check --effective %s`, then run with --yes", c.name, c.name)
	}
	fmt.Fprintf(a.Err, "%s\nThese are the rights that %s gives to the agent. Go on? [y/N] ",
		escape.Text(c.profile.Effective()), escape.Line(c.name))
	answer, err := bufio.NewReader(a.In).ReadString('\n')
	if err != nil || !slices.Contains([]string{"y", "yes"}, strings.ToLower(strings.TrimSpace(answer))) {
		return "", errors.New("not confirmed; nothing was run")
	}
	return "prompt", nil
}
