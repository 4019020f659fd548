package structure

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// strange is what no file of the tree may say: places of one machine, and how
// or by whom the tree was written. Spelled in halves, so that this file may
// state the rule. A test may attack a host's private folders, and make up
// paths, so the second list does not hold for tests.
var (
	strange = regexp.MustCompile(`\.lib` + `rary/|/tmp/br` + `ief|/tmp/bash` + `_jobs|(?i)proxy\.gol` + `ang\.org|registry\.npm` + `js\.org|pypi\.o` + `rg|co-auth` + `ored-by|generated w` + `ith claude|as an ai la` + `nguage`)
	private = regexp.MustCompile(`/ro` + `ot/|/wo` + `rk/`)
)

func TestForbiddenWords(t *testing.T) {
	err := walk(func(path string, entry fs.DirEntry) error {
		if !entry.Type().IsRegular() || path == "LICENSE" || strings.HasSuffix(path, "go.sum") {
			return nil
		}
		text, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			return err
		}
		if bytes.IndexByte(text, 0) >= 0 {
			return nil
		}
		testing := strings.HasSuffix(path, "_test.go") || strings.HasPrefix(path, "tests/") || strings.HasPrefix(path, "internal/testlab/")
		for i, line := range bytes.Split(text, []byte("\n")) {
			found := strange.Find(line)
			if found == nil && !testing {
				found = private.Find(line)
			}
			if found != nil {
				t.Errorf("%s:%d says %q: the tree speaks of the project alone", path, i+1, found)
				break // one line a file is enough to find the rest
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
