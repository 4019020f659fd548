package cli

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"skep.dev/skep/internal/cli/manual"
)

var update = flag.Bool("update", false, "write docs/man, docs/completion and docs/cli.md instead of comparing them")

// The man pages, the shells' completions and the tables of docs/cli.md are generated
// from the commands, and what is committed is what the commands say now.
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
	files["cli.md"] = tables(t, root)
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
	page := strings.Replace(b.String(), ".SH EXAMPLE\n", ".SH EXAMPLES\n", 1)
	before, after, _ := strings.Cut(page, ".SH SEE ALSO\n")
	files["man/"+name+".1"] = []byte(before + roff(manual.Of(c)) + ".SH SEE ALSO\n" + after)
	for _, sub := range c.Commands() {
		pages(t, sub, files)
	}
}

// roff is the sections of a page as man(7) has them.
func roff(sections []manual.Section) string {
	var b strings.Builder
	for _, s := range sections {
		fmt.Fprintf(&b, ".SH %s\n", strings.ToUpper(s.Title))
		for _, r := range s.Rows {
			fmt.Fprintf(&b, ".TP\n\\fB%s\\fP\n%s\n", plainRoff(r.Head), plainRoff(r.Text))
		}
		b.WriteString("\n")
	}
	return b.String()
}

// plainRoff keeps a text from being read as a request or an escape; \\& is nothing.
func plainRoff(s string) string { return `\&` + strings.ReplaceAll(s, `\`, `\e`) }

// tables is docs/cli.md with its generated tables, each between two comments, anew.
func tables(t *testing.T, root *cobra.Command) []byte {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("..", "..", "docs", "cli.md"))
	if err != nil {
		t.Fatal(err)
	}
	text := string(raw)
	run, _, err := root.Find([]string{"run"})
	if err != nil {
		t.Fatal(err)
	}
	for name, table := range map[string]struct {
		head string
		rows []manual.Row
	}{
		"commands": {"command | does", commandRows(root)}, "run": {"status | means", manual.Statuses(run)}, "statuses": {"status | means", manual.Statuses(root)},
		"files": {"file | holds", manual.Files()}, "environment": {"variable | says", manual.Environment()},
	} {
		begin, end := "<!-- "+name+": by make generate -->\n", "<!-- end -->"
		head, rest, found := strings.Cut(text, begin)
		_, tail, ends := strings.Cut(rest, end)
		if !found || !ends {
			t.Fatalf("docs/cli.md has no table %q", name)
		}
		var b strings.Builder
		b.WriteString("\n| " + table.head + " |\n|---|---|\n")
		for _, r := range table.rows {
			fmt.Fprintf(&b, "| `%s` | %s |\n", strings.ReplaceAll(r.Head, "|", `\|`), strings.ReplaceAll(r.Text, "|", `\|`))
		}
		text = head + begin + b.String() + "\n" + end + tail
	}
	return []byte(text)
}

// commandRows is each command as it is typed, with its own flags.
func commandRows(c *cobra.Command) (rows []manual.Row) {
	if c.Runnable() && c.HasParent() && !c.HasSubCommands() && !c.Hidden && c.Name() != "help" {
		text := c.Short
		for _, flag := range regexp.MustCompile(`(?m)^ .*?(--[a-z-]+)`).FindAllStringSubmatch(c.LocalNonPersistentFlags().FlagUsages(), -1) {
			if flag[1] != "--help" {
				text += ", `" + flag[1] + "`"
			}
		}
		rows = append(rows, manual.Row{Head: strings.TrimSuffix(c.Parent().CommandPath()+" "+c.Use, " "), Text: text})
	}
	for _, sub := range c.Commands() {
		rows = append(rows, commandRows(sub)...)
	}
	return rows
}

// Every command has an example and says what its statuses mean, and help shows both.
func TestEveryCommandHasAManual(t *testing.T) {
	for _, r := range commandRows((&App{}).root()) {
		words := strings.Fields(r.Head)[1:]
		if words[0] == "ledger" || words[0] == "model" || words[0] == "box" {
			words = words[:2]
		} else {
			words = words[:1]
		}
		a, out, errs := app(t)
		if a.Run(t.Context(), append(words, "--help")) != statusDone {
			t.Errorf("%v --help: %s", words, errs)
		}
		for _, want := range []string{"Examples:\n  skep ", "\nExit status:\n"} {
			if !strings.Contains(out(), want) {
				t.Errorf("skep %s --help has no %q", strings.Join(words, " "), want)
			}
		}
	}
	a, out, _ := app(t)
	a.Run(t.Context(), []string{"help"})
	for _, want := range []string{"Run and watch:", "Read and decide:", "Exit status:", "Files:", "Environment:", "PAGER"} {
		if !strings.Contains(out(), want) {
			t.Errorf("skep help has no %q:\n%s", want, out())
		}
	}
}
