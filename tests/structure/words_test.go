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
// state the rule. A host's own private folders are fair game for an attack, so
// the second list does not hold for tests.
var (
	strange = regexp.MustCompile(`/wo` + `rk/|\.lib` + `rary/|/tmp/br` + `ief|/tmp/bash` + `_jobs|(?i)proxy\.gol` + `ang\.org|registry\.npm` + `js\.org|pypi\.o` + `rg|co-auth` + `ored-by|generated w` + `ith claude|as an ai la` + `nguage`)
	private = regexp.MustCompile(`/ro` + `ot/`)
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
			for _, rule := range []*regexp.Regexp{strange, private} {
				if found := rule.Find(line); found != nil && !(rule == private && testing) {
					t.Errorf("%s:%d says %q: the tree speaks of the project alone", path, i+1, found)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
