package cli

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

var update = flag.Bool("update", false, "write docs/man and docs/completion instead of comparing them")

// The man pages and the shells' completions are generated from the commands, and
// what is committed is what the commands say now.
func TestReferenceIsCurrent(t *testing.T) {
	files := map[string][]byte{}
	root := (&App{}).root()
	pages(t, root, files)
	for name, write := range map[string]func(*bytes.Buffer) error{
		"completion/skep.bash": func(b *bytes.Buffer) error { return root.GenBashCompletionV2(b, true) },
		"completion/_skep":     func(b *bytes.Buffer) error { return root.GenZshCompletion(b) },
		"completion/skep.fish": func(b *bytes.Buffer) error { return root.GenFishCompletion(b, true) },
	} {
		var b bytes.Buffer
		if err := write(&b); err != nil {
			t.Fatal(err)
		}
		files[name] = b.Bytes()
	}
	for name, want := range files {
		path := filepath.Join("..", "..", "docs", name)
		if *update {
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, want, 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
			t.Errorf("docs/%s is not what the commands say (%v): run make generate", name, err)
		}
	}
}

func pages(t *testing.T, c *cobra.Command, files map[string][]byte) {
	t.Helper()
	if c.Hidden || c.Name() == "help" {
		return
	}
	c.InitDefaultHelpFlag()
	c.DisableAutoGenTag = true
	// A fixed date: a page changes only when its command does.
	date := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	name := strings.ReplaceAll(c.CommandPath(), " ", "-")
	var b bytes.Buffer
	header := &doc.GenManHeader{Title: strings.ToUpper(name), Section: "1", Source: "Skep", Manual: "Skep", Date: &date}
	if err := doc.GenMan(c, header, &b); err != nil {
		t.Fatal(err)
	}
	files["man/"+name+".1"] = b.Bytes()
	for _, sub := range c.Commands() {
		pages(t, sub, files)
	}
}
