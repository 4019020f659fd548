package selftest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"skep.dev/skep/internal/cell/prove"
	"skep.dev/skep/internal/sys/durable"
)

// covers reports whether what was proved is what is there now, wall by wall.
func (p Proof) covers(now Proof) bool {
	walls := prove.Walls()
	if p.Kernel != now.Kernel || p.Boot != now.Boot || !slices.Equal(p.Programs, now.Programs) || len(p.Walls) != len(walls) {
		return false
	}
	for i, w := range walls {
		if p.Walls[i] != w.Name {
			return false
		}
	}
	return true
}

// read reads a kept proof, strictly.
func read(file string) (Proof, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return Proof{}, fmt.Errorf("read the kept proof: %w", err)
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	var p Proof
	if err := d.Decode(&p); err != nil {
		return Proof{}, fmt.Errorf("read the kept proof: %w", err)
	}
	if d.More() {
		return Proof{}, errors.New("read the kept proof: bytes after its end")
	}
	return p, nil
}

// write replaces the file as a whole. After a crash there is the old proof, which
// is of another state, or this one, or none.
func write(file string, p Proof) error {
	raw, err := json.MarshalIndent(p, "", " ")
	if err != nil {
		return fmt.Errorf("keep the proof: %w", err)
	}
	if err := durable.ReplaceFile(file, append(raw, '\n'), 0o600); err != nil {
		return fmt.Errorf("keep the proof: %w", err)
	}
	return nil
}

func forget(file string) error {
	if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("forget the kept proof: %w", err)
	}
	return nil
}
