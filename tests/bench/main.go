// Command bench prints one table: our figures beside another's, measured in the
// same run (targets.md, boundary.md B151).
//
// Its laws:
//   - Ours and theirs take turns, so that the machine's other work falls on both;
//     a figure is a median, and a ratio one of medians.
//   - A peer that is missing is skipped with its reason, never left out silently.
//   - Everything runs on loopback or in namespaces that the benchmark made; every
//     loop has an end.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"time"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == roleArgument {
		if err := role(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
		return
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// settings are the flags.
type settings struct {
	only   *regexp.Regexp
	quick  bool
	asJSON bool
	bin    string
	self   string // this program, in dir, where a cell may read it
	dir    string // of this run, removed at its end
}

// rounds is how often ours and theirs take turns.
func (s *settings) rounds(full int) int {
	if s.quick {
		return max(3, full/6)
	}
	return full
}

func run() (err error) {
	s := &settings{}
	only := flag.String("only", "", "measure only what matches this pattern (a regular expression)")
	flag.BoolVar(&s.quick, "quick", false, "fewer turns: for a look, not for a figure")
	flag.BoolVar(&s.asJSON, "json", false, "print JSON instead of the table")
	flag.StringVar(&s.bin, "bin", "bin", "directory of the built programs")
	flag.Parse()
	if s.only, err = regexp.Compile(*only); err != nil {
		return fmt.Errorf("read --only: %w", err)
	}
	if s.bin, err = filepath.Abs(s.bin); err != nil {
		return err
	}
	if err := s.place(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(s.dir)) }()
	var rows []Row
	for _, g := range groups() {
		if !s.only.MatchString(g.name) {
			continue
		}
		begin := time.Now()
		found, err := g.measure(s)
		if err != nil {
			found = append(found, Row{Measure: g.name, Skipped: err.Error()})
		}
		fmt.Fprintf(os.Stderr, "bench: %s took %s\n", g.name, time.Since(begin).Round(time.Second))
		rows = append(rows, found...)
	}
	if s.asJSON {
		return json.NewEncoder(os.Stdout).Encode(rows)
	}
	fmt.Print(Table(rows))
	return nil
}

// place makes the run's directory, and puts this program where cells may read it.
func (s *settings) place() (err error) {
	if s.dir, err = os.MkdirTemp("/var/tmp", "skep-bench-"); err != nil {
		return fmt.Errorf("make a place for the benchmark: %w", err)
	}
	if err := os.Chmod(s.dir, 0o755); err != nil {
		return err
	}
	program, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		return fmt.Errorf("read this program: %w", err)
	}
	if err := os.Mkdir(filepath.Join(s.dir, "self"), 0o755); err != nil {
		return err
	}
	s.self = filepath.Join(s.dir, "self", "bench")
	return os.WriteFile(s.self, program, 0o755)
}

// group is a set of measures that share their preparation.
type group struct {
	name    string
	measure func(*settings) ([]Row, error)
}

func groups() []group {
	return []group{
		{"start", measureStart},
		{"cli", measureCLI},
		{"crowd", measureCrowd},
		{"memory", measureMemory},
		{"boxes", measureBoxes},
		{"network", measureNetwork},
		{"compile", measureCompile},
		{"record", measureRecord},
	}
}
