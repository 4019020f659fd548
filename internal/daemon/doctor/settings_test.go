package doctor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"skep.dev/skep/internal/config"
)

// What keeps a cell from its model is said before a cell asks for it.
func TestSettings(t *testing.T) {
	dir := t.TempDir()
	for name, mode := range map[string]os.FileMode{"key": 0o600, "open.key": 0o644, "empty.key": 0o600, "steps.yaml": 0o644} {
		content := []byte("x")
		if strings.HasPrefix(name, "empty") {
			content = nil
		}
		if err := errors.Join(os.WriteFile(filepath.Join(dir, name), content, mode), os.Chmod(filepath.Join(dir, name), mode)); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		text string
		want string // status, name, and a part of detail and fix
	}{
		"nothing":          {"", "ok models none is configured"},
		"all well":         {"targets: {a: {openai: https://m.example/v1, key: file:DIR/key}}\nroles: {coder: [a]}", "ok target a https://m.example/v1, its key in DIR/key"},
		"a role":           {"targets: {a: {openai: http://localhost:1/v1}, b: {script: steps.yaml}}\nroles: {coder: [a, b]}", "ok role coder a, then b"},
		"a script":         {"targets: {b: {script: steps.yaml}}\nroles: {coder: [b]}", "ok target b the script DIR/steps.yaml"},
		"no script":        {"targets: {b: {script: gone.yaml}}\nroles: {coder: [b]}", "missing target b open DIR/gone.yaml"},
		"no key":           {"targets: {a: {openai: https://m.example/v1, key: file:DIR/gone}}\nroles: {coder: [a]}", "missing target a open DIR/gone: no such file"},
		"an empty key":     {"targets: {a: {openai: https://m.example/v1, key: file:DIR/empty.key}}\nroles: {coder: [a]}", "missing target a DIR/empty.key is no file or empty"},
		"a directory":      {"targets: {a: {openai: https://m.example/v1, key: file:DIR}}\nroles: {coder: [a]}", "missing target a DIR is no file or empty"},
		"an open key":      {"targets: {a: {openai: https://m.example/v1, key: file:DIR/open.key}}\nroles: {coder: [a]}", "degraded target a its key in DIR/open.key (mode 0644) is open"},
		"a key in clear":   {"targets: {a: {openai: http://m.example/v1, key: file:DIR/key}}\nroles: {coder: [a]}", "missing target a its key would go to http://m.example/v1"},
		"a key to itself":  {"targets: {a: {openai: \"http://127.0.0.1:1/v1\", key: file:DIR/key}}\nroles: {coder: [a]}", "ok target a http://127.0.0.1:1/v1, its key"},
		"a lost target":    {"targets: {a: {openai: https://m.example/v1}}", "degraded target a no role names it"},
		"an unknown key":   {"targets: {a: {openai: https://m.example/v1, kee: x}}", "missing config.yaml DIR/config.yaml:1:"},
		"an unknown one":   {"roles: {coder: [a]}", `missing config.yaml DIR/config.yaml:1:17: role coder names the target "a"`},
		"no YAML":          {"targets: [", "missing config.yaml DIR/config.yaml"},
		"a secret, unsaid": {"targets: {a: {openai: https://m.example/v1, key: sk-verysecret}}", "missing config.yaml"},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(dir, "config.yaml")
			if err := os.WriteFile(file, []byte(strings.ReplaceAll(c.text, "DIR", dir)), 0o600); err != nil {
				t.Fatal(err)
			}
			if c.text == "" {
				_ = os.Remove(file)
			}
			found := Settings(func() (*config.Config, error) { return config.Load(file) }, func() error { return nil })
			all, ok := "", false
			for _, f := range found {
				line := fmt.Sprintf("%s %s %s", f.Status, f.Name, f.Detail)
				ok = ok || strings.HasPrefix(line, strings.ReplaceAll(c.want, "DIR", dir))
				all += line + "\n"
				if f.Status != OK && f.Fix == "" {
					t.Errorf("%s: nothing is said to do about it", line)
				}
			}
			if !ok || strings.Contains(all, "verysecret") {
				t.Errorf("want %s, got\n%s", c.want, all)
			}
		})
	}
}

func TestUnreadableSettings(t *testing.T) {
	refused := errors.New("read config: permission denied")
	found := Settings(func() (*config.Config, error) { return nil, refused }, func() error { return refused })
	if len(found) != 2 || found[0].Status != Missing || found[1].Name != "ceiling.yaml" || found[1].Status != Missing || found[0].Fix == "" {
		t.Errorf("%+v", found)
	}
}
