package connector

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"skep.dev/skep/internal/boundary"
	"skep.dev/skep/internal/bundle"
	"skep.dev/skep/internal/config"
	"skep.dev/skep/internal/place"
	"skep.dev/skep/internal/right/declared"
)

// maxLine is more than any record has, in bytes.
const maxLine = 1 << 20

// look performs a command that only reads.
func look(command string, args []string, stdout, stderr io.Writer) error {
	f := flag.NewFlagSet("skep-box "+command, flag.ContinueOnError)
	f.SetOutput(stderr)
	var file, ceiling string
	switch command {
	case "explain":
		f.StringVar(&file, "bundle", "", "the bundle to explain")
		f.StringVar(&ceiling, "ceiling", place.SystemCeiling(), "the ceiling above it")
	case "denials":
		f.StringVar(&file, "records", "", "the records to read")
	}
	if err := f.Parse(args); err != nil {
		return err
	}
	switch {
	case f.NArg() > 0:
		return fmt.Errorf("unexpected argument %q", f.Arg(0))
	case command == "limits":
		_, err := io.WriteString(stdout, boundary.Table())
		return err
	case file == "":
		return errors.New("name the file: --bundle for explain, --records for denials")
	case command == "denials":
		return denials(file, stdout)
	}
	return explain(file, ceiling, stdout)
}

// explain prints a bundle as it was understood: each rule in its one form, and what it
// matches (B86).
func explain(file, ceiling string, out io.Writer) error {
	src, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("read the bundle: %w", err)
	}
	b, faults := bundle.Parse(file, src)
	if faults != nil {
		return faults.Err()
	}
	c, err := config.LoadCeiling(ceiling)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "agent %s\n", b.Agent)
	if b.ExternalID != "" {
		fmt.Fprintf(out, "external_id %q\n", b.ExternalID)
	}
	if len(b.Allow) == 0 {
		fmt.Fprintln(out, "allows nothing")
	}
	list(out, "allows", b.Allow)
	if c.Limited {
		list(out, "and the ceiling must allow", c.Allow)
	}
	list(out, "never, by the ceiling,", c.Deny)
	for _, w := range b.Warnings {
		fmt.Fprintf(out, "warning: %s\n", w)
	}
	return nil
}

func list(out io.Writer, what string, rules []declared.NetRule) {
	for _, r := range rules {
		fmt.Fprintf(out, "%s %s\n    line %d: %s\n", what, r.Dest.Explain(), r.Line, r.Net)
	}
}

// denials prints the narrowest rules that would admit what was refused, each once, to be
// pasted below `allow:` (B89). A line of the records is believed only as far as it reads
// as one rule.
func denials(file string, out io.Writer) error {
	f, err := os.Open(file)
	if err != nil {
		return fmt.Errorf("read the records: %w", err)
	}
	defer func() { _ = f.Close() }()
	var rules []string
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		var r struct {
			Kind, Reason string
			AllowWith    string `json:"allow_with"`
		}
		if json.Unmarshal(lines.Bytes(), &r) != nil || r.AllowWith == "" || r.Kind == "intent" {
			continue
		}
		if isRule(r.AllowWith) && !slices.Contains(rules, r.AllowWith) {
			rules = append(rules, r.AllowWith)
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read the records: %w", err)
	}
	slices.Sort(rules)
	for _, r := range rules {
		fmt.Fprintln(out, r)
	}
	return nil
}

func isRule(line string) bool {
	if strings.ContainsAny(line, "\r\n") {
		return false
	}
	b, faults := bundle.Parse("rule", bytes.Join([][]byte{[]byte("version: v1\nagent: {id: a.example}\negress:\n  allow:\n    "), []byte(line), {'\n'}}, nil))
	return faults == nil && len(b.Allow) == 1
}
