package opened

import (
	"fmt"
	"path/filepath"
	"strings"

	"skep.dev/skep/internal/handover"
	"skep.dev/skep/internal/secret"
	"skep.dev/skep/internal/secret/listed"
	"skep.dev/skep/internal/sys"
)

// Secrets opens the sources of secrets with the user's own rights: a file with its
// directory, so that one that takes its place is found, and a variable of env as sealed
// memory. What is in them is not looked at here.
func (b *Bundle) Secrets(list []listed.Secret, env []string) error {
	for _, s := range list {
		if err := b.Secret(s.Name, s.Source, env); err != nil {
			return fmt.Errorf("line %d: %w", s.Line, err)
		}
	}
	return nil
}

// Secret opens one source.
func (b *Bundle) Secret(name string, from secret.Source, env []string) error {
	if from.Env != "" {
		return b.variable(name, from.Env, env)
	}
	if err := b.source(name, from.File); err != nil {
		return fmt.Errorf("open the source of secret %q: %w", name, err)
	}
	return nil
}

func (b *Bundle) variable(name, from string, env []string) error {
	for _, pair := range env {
		if value, ok := strings.CutPrefix(pair, from+"="); ok {
			f, err := sys.SealedFile("secret", []byte(value))
			if err != nil {
				return err
			}
			b.Add(handover.RoleSecret, name, f)
			return nil
		}
	}
	return fmt.Errorf("secret %q is read from the variable %s, which is not set: set it, or name a file", name, from)
}

func (b *Bundle) source(name, path string) error {
	dir, err := sys.OpenPath(filepath.Dir(path))
	if err != nil {
		return err
	}
	f, err := sys.OpenEntry(dir, filepath.Base(path))
	if err != nil { // a link that leads out of its directory: what it leads to stands for it
		_ = dir.Close()
		real, missing := filepath.EvalSymlinks(path)
		if missing != nil || real == path {
			return err
		}
		return b.source(name, real)
	}
	b.Add(handover.RoleSecret, name, f)
	b.Add(handover.RoleDir, name+"/"+filepath.Base(path), dir)
	return nil
}
