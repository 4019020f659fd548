package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"skep.dev/skep/tests/bench/rig"
	"skep.dev/skep/tests/bench/traffic"
)

// measureCompile builds one small module in a writable grant. Everyone starts from
// the same tree and a build cache that holds the library only; the walls differ.
func measureCompile(s *settings) ([]Row, error) {
	m := &compile{base: filepath.Join(s.dir, "compile"), copies: filepath.Join(s.dir, "copies")}
	if err := m.write(); err != nil {
		return nil, err
	}
	r, err := rig.Start(s.bin, filepath.Join(s.dir, "compile-rig"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Close() }()
	cell := &contender{name: "cell", turn: func() (float64, error) { return m.inCell(r) }}
	outside := m.contender("outside", func(copied string) *exec.Cmd {
		c := exec.Command(m.goroot+"/bin/go", "build", "./...")
		c.Dir = copied
		return c
	})
	wrap := m.contender("bwrap", func(copied string) *exec.Cmd {
		args := bubblewrap(copied, m.goroot+"/bin/go", "build", "./...")
		return exec.Command("bwrap", append([]string{"--ro-bind", m.goroot, m.goroot}, replace(args, "--chdir", copied)...)...)
	})
	overlay := m.contender("plain overlay", func(copied string) *exec.Cmd {
		layer := m.copies + "/layer"
		return exec.Command("unshare", "-m", "/bin/sh", "-c", fmt.Sprintf(
			"rm -rf %[1]s; mkdir -p %[1]s/upper %[1]s/work && mount -t overlay overlay -o lowerdir=%[2]s,upperdir=%[1]s/upper,workdir=%[1]s/work %[2]s && cd %[2]s && exec %[3]s/bin/go build ./...",
			layer, copied, m.goroot))
	})
	for name, c := range map[string]*contender{"bwrap": wrap, "unshare": overlay} {
		if _, err := exec.LookPath(name); err != nil {
			c.skipped = err.Error()
		}
	}
	if os.Getuid() != 0 {
		overlay.skipped = "a plain overlay mount needs root"
	}
	if err := alternate(s.rounds(30), cell, outside, wrap, overlay); err != nil {
		return nil, err
	}
	rows := []Row{
		against("compile, start included", "ms", cell, overlay, "<= 1.03", atMost(1.03)),
		against("compile, start included", "ms", cell, outside, "", nil),
		against("compile, start included", "ms", cell, wrap, "", nil),
	}
	return rows, nil
}

// replace puts another value behind an option.
func replace(args []string, option, value string) []string {
	out := append([]string(nil), args...)
	for i := range out[:len(out)-1] {
		if out[i] == option {
			out[i+1] = value
		}
	}
	return out
}

// compile is the module and its places.
type compile struct {
	goroot, base, copies string
}

const packages = 8

// write makes the module, which uses a few packages of the library, and fills its
// build cache with those.
func (m *compile) write() error {
	find := exec.Command("go", "env", "GOROOT")
	find.Dir, find.Env = "/", append(os.Environ(), "GOTOOLCHAIN=local")
	out, err := find.Output()
	if err != nil {
		return fmt.Errorf("find the Go that compiles: %w", err)
	}
	m.goroot = strings.TrimSpace(string(out))
	files := map[string]string{"go.mod": "module example.org/small\n\ngo 1.21\n"}
	for i := range packages {
		files[fmt.Sprintf("p%d/p.go", i)] = fmt.Sprintf(source, i)
	}
	for name, text := range files {
		at := filepath.Join(m.base, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(at, []byte(text), 0o644); err != nil {
			return err
		}
	}
	library := exec.Command(m.goroot+"/bin/go", "build", "sort", "strings")
	library.Dir, library.Env = m.base, m.env(m.base)
	if out, err := library.CombinedOutput(); err != nil {
		return fmt.Errorf("fill the build cache: %w: %s", err, out)
	}
	return nil
}

const source = `package p%d

import (
	"sort"
	"strings"
)

// Words are the words of s, sorted.
func Words(s string) []string {
	w := strings.Fields(s)
	sort.Strings(w)
	return w
}
`

func (m *compile) env(dir string) []string {
	return []string{
		"PATH=" + m.goroot + "/bin:/usr/bin:/bin", "GOCACHE=" + dir + "/cache", "GOPATH=" + dir + "/gopath", "HOME=" + dir,
		"GOTOOLCHAIN=local", "GOPROXY=off", "GOTELEMETRY=off", "CGO_ENABLED=0", "TMPDIR=/tmp",
	}
}

// contender compiles in a copy of the module, which it makes and removes outside of
// its time.
func (m *compile) contender(name string, command func(copied string) *exec.Cmd) *contender {
	return &contender{name: name, turn: func() (float64, error) {
		copied := filepath.Join(m.copies, "tree")
		if err := os.MkdirAll(m.copies, 0o755); err != nil {
			return 0, err
		}
		defer os.RemoveAll(m.copies)
		if out, err := exec.Command("cp", "-a", m.base, copied).CombinedOutput(); err != nil {
			return 0, fmt.Errorf("copy the module: %w: %s", err, out)
		}
		c := command(copied)
		c.Env = m.env(copied)
		if name == "bwrap" { // it clears the environment, and is told it instead
			var set []string
			for _, v := range c.Env {
				key, value, _ := strings.Cut(v, "=")
				set = append(set, "--setenv", key, value)
			}
			at := len(c.Args) - 4 // before -- and the three words of the command
			c.Args = append(append(append([]string(nil), c.Args[:at]...), set...), c.Args[at:]...)
		}
		begin := time.Now()
		out, err := c.CombinedOutput()
		if err != nil {
			return 0, fmt.Errorf("%w: %s", err, out)
		}
		return traffic.Milliseconds(time.Since(begin)), nil
	}}
}

func (m *compile) inCell(r *rig.Rig) (float64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := r.Start(ctx, rig.Request{
		Argv: []string{m.goroot + "/bin/go", "build", "./..."}, Env: m.env(m.base), Dir: m.base, Read: []string{m.goroot}, Write: []string{m.base},
	})
	if err != nil {
		return 0, err
	}
	took, err := c.Wait()
	return traffic.Milliseconds(took), errors.Join(err, c.End(ctx), r.Refill(ctx))
}
