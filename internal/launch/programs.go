package launch

import (
	"fmt"
	"os"
	"path/filepath"
)

// Programs is the directory of this program, where the others stand beside it.
func Programs() (string, error) {
	exe, err := os.Executable()
	if err == nil {
		exe, err = filepath.EvalSymlinks(exe)
	}
	if err != nil {
		return "", fmt.Errorf("find Skep's programs: %w", err)
	}
	return filepath.Dir(exe), nil
}
