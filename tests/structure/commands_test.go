package structure

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	said     = regexp.MustCompile("`skep ((?:[a-z]+ )*[a-z]+)\\b([^`]*)`")
	longFlag = regexp.MustCompile(`--[a-z][a-z-]+`)
)

// What a text tells a person to type exists: the command has a page of its own, which
// is generated from it, and the page has the flags.
func TestTextsNameCommandsThatExist(t *testing.T) {
	found := 0
	err := walk(func(path string, _ fs.DirEntry) error {
		if strings.HasSuffix(path, "_test.go") || !strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, ".md") {
			return nil
		}
		for _, match := range said.FindAllStringSubmatch(read(t, path), -1) {
			found++
			page, rest := manPage(strings.Fields(match[1]))
			if page == "" {
				t.Errorf("%s names `skep %s`, and there is no such command", path, match[1])
				continue
			}
			own, _, _ := strings.Cut(rest+match[2], " -- ") // the agent's own flags are not ours
			for _, f := range longFlag.FindAllString(own, -1) {
				if !strings.Contains(page, f) {
					t.Errorf("%s names %s, which `skep %s` does not have", path, f, match[1])
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if found < 20 {
		t.Errorf("only %d commands were found in all texts: the pattern is wrong", found)
	}
}

// manPage is that of the longest command at the head of words, and what is left.
func manPage(words []string) (page, rest string) {
	if words[0] == "help" { // has no page: it shows the others
		words = words[1:]
		if text, err := os.ReadFile(filepath.Join(root, "docs/man/skep.1")); err == nil && len(words) == 0 {
			return string(text), ""
		}
	}
	for n := len(words); n > 0; n-- {
		text, err := os.ReadFile(filepath.Join(root, "docs/man", "skep-"+strings.Join(words[:n], "-")+".1"))
		if err == nil {
			return string(text), strings.Join(words[n:], " ")
		}
	}
	return "", ""
}
