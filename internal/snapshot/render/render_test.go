package render

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"skep.dev/skep/internal/snapshot"
)

// fake serves contents from memory through real files.
type fake struct {
	t     *testing.T
	files map[snapshot.Side]map[string]string
}

func (f fake) Open(_ context.Context, side snapshot.Side, _ int, path string) (*os.File, error) {
	content, ok := f.files[side][path]
	if !ok {
		return nil, errors.New("no such content")
	}
	name := filepath.Join(f.t.TempDir(), "f")
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		return nil, err
	}
	return os.Open(name)
}

func file(content string, mode uint32) snapshot.State {
	return snapshot.State{Type: snapshot.File, Mode: mode, Size: int64(len(content)), Digest: sha256.Sum256([]byte(content))}
}

type walker []snapshot.Entry

func (w walker) Walk(_ context.Context, yield func(snapshot.Entry) error) error {
	for _, e := range w {
		if err := yield(e); err != nil {
			return err
		}
	}
	return nil
}

const hostile = "\x1b]0;title\x07\u202egnp.exe\r\xff\n"

func sample(t *testing.T) (*snapshot.Difference, fake) {
	t.Helper()
	old, changed := "one\ntwo\nthree\n", "one\n2\nthree\n"
	entries := walker{
		{Path: "a.txt", Base: file(old, 0o644), Layer: file(changed, 0o644)},
		{Path: "bin", Base: file("\x00a", 0o644), Layer: file("\x00bc", 0o644)},
		{Path: "evil" + hostile, Layer: file(hostile, 0o666)},
		{Path: ".git/hooks/post-merge", Layer: file("#!/bin/sh\n", 0o755)},
		{Path: "pipe", Layer: snapshot.State{Type: snapshot.FIFO, Mode: 0o644}},
		{Path: "link" + hostile, Layer: snapshot.State{Type: snapshot.Symlink, Target: hostile, Size: int64(len(hostile)), Digest: sha256.Sum256([]byte(hostile))}},
		{Path: "readonly", Layer: file("r", 0o644)},
	}
	d, err := snapshot.Diff(context.Background(), entries, []string{"/home/u/w"}, func(_ int, path string) bool { return path != "readonly" })
	if err != nil {
		t.Fatal(err)
	}
	files := map[snapshot.Side]map[string]string{
		snapshot.BaseSide: {"a.txt": old, "bin": "\x00a"},
		snapshot.LayerSide: {"a.txt": changed, "bin": "\x00bc", "evil" + hostile: hostile,
			".git/hooks/post-merge": "#!/bin/sh\n", "readonly": "r"},
	}
	return d, fake{t, files}
}

func TestTerminalOrderAndWhole(t *testing.T) {
	d, c := sample(t)
	var out bytes.Buffer
	if err := Terminal(context.Background(), &out, d, c, Options{Cell: "quick-fox"}); err != nil {
		t.Fatal(err)
	}
	text := out.String()
	at := 0
	for _, want := range []string{
		"may run something", ".git/hooks/post-merge", "--with-active names it", "+#!/bin/sh",
		"changed  /home/u/w/a.txt", "@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n",
		"2 bytes, sha256", "-> 3 bytes, sha256", "mode 0666 (merged as 0644)",
		"never applies these", "pipe  (fifo", "refused: a FIFO", "readonly", "refused: the profile does not make",
		"+r\n\\ No newline at end of file\n", "7 paths, ", d.Hash, "skep merge quick-fox " + d.Hash[:12],
	} {
		i := strings.Index(text[at:], want)
		if i < 0 {
			t.Fatalf("%q is missing, or too early:\n%s", want, text)
		}
		at += i
	}
	if strings.Count(text, d.Hash) != 1 {
		t.Error("the hash stands before the text that it binds")
	}
}

// No byte of a cell moves the cursor, reorders or hides (L18a).
func TestNothingHostileReachesATerminal(t *testing.T) {
	d, c := sample(t)
	for _, o := range []Options{{}, {Stat: true}, {NameOnly: true}} {
		var out bytes.Buffer
		if err := Terminal(context.Background(), &out, d, c, o); err != nil {
			t.Fatal(err)
		}
		clean(t, out.String())
	}
	var out bytes.Buffer
	if err := JSON(&out, d); err != nil {
		t.Fatal(err)
	}
	clean(t, out.String())
	var back struct {
		Hash    string
		Entries []struct {
			Path      string
			PathBytes []byte `json:"path_bytes"`
		}
	}
	if err := json.Unmarshal(out.Bytes(), &back); err != nil || back.Hash != d.Hash || len(back.Entries) != len(d.Entries) {
		t.Fatalf("%v, %d entries", err, len(back.Entries))
	}
	for i, e := range back.Entries {
		got := e.Path
		if e.PathBytes != nil {
			got = string(e.PathBytes)
		}
		if got != d.FullPath(&d.Entries[i]) {
			t.Errorf("path %q came back as %q", d.FullPath(&d.Entries[i]), got)
		}
	}
}

func clean(t *testing.T, text string) {
	t.Helper()
	for _, bad := range []string{"\x1b", "\x07", "\u202e", "\r", "\xff"} {
		if strings.Contains(text, bad) {
			t.Errorf("%q reached the output", bad)
		}
	}
}

// What is shown is what the hash binds, or there is no hash.
func TestMovedContentShowsNoHash(t *testing.T) {
	d, c := sample(t)
	c.files[snapshot.LayerSide]["a.txt"] = "one\n2\nthree, and more\n"
	var out bytes.Buffer
	if err := Terminal(context.Background(), &out, d, c, Options{}); !errors.Is(err, errMoved) {
		t.Errorf("got %v", err)
	}
	if strings.Contains(out.String(), d.Hash[:12]) {
		t.Error("the hash was shown")
	}
}

func TestColorIsOursAlone(t *testing.T) {
	d, c := sample(t)
	var plain, colored bytes.Buffer
	_ = Terminal(context.Background(), &plain, d, c, Options{})
	_ = Terminal(context.Background(), &colored, d, c, Options{Color: true})
	text := colored.String()
	for _, sgr := range []string{bold, red, green, yellow, cyan, reset} {
		text = strings.ReplaceAll(text, sgr, "")
	}
	if text != plain.String() {
		t.Error("colours change more than colours")
	}
}

// A rename is one line for two paths; a program reads both operations, each naming the other.
func TestRenameIsOneLine(t *testing.T) {
	moved := file("same\n", 0o644)
	narrowed := file("same\n", 0o600)
	entries := walker{{Path: "old" + hostile, Base: moved}, {Path: "new", Layer: narrowed}, {Path: "other", Layer: file("x\n", 0o644)}}
	d, err := snapshot.Diff(context.Background(), entries, []string{"/w"}, func(int, string) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	c := fake{t, map[snapshot.Side]map[string]string{snapshot.LayerSide: {"other": "x\n"}}}
	var out bytes.Buffer
	if err := Terminal(context.Background(), &out, d, c, Options{}); err != nil {
		t.Fatal(err)
	}
	clean(t, out.String())
	for _, want := range []string{"renamed  /w/old", " -> /w/new  (mode 0644 -> 0600)\n", "3 paths, 1 line added", d.Hash} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing:\n%s", want, out.String())
		}
	}
	out.Reset()
	if err := JSON(&out, d); err != nil {
		t.Fatal(err)
	}
	var back struct {
		Entries []struct {
			Op          string
			RenamedTo   string `json:"renamed_to"`
			RenamedFrom []byte `json:"renamed_from_bytes"`
		}
	}
	if err := json.Unmarshal(out.Bytes(), &back); err != nil {
		t.Fatal(err)
	}
	if e := back.Entries; e[0].Op != "added" || string(e[0].RenamedFrom) != "/w/old"+hostile || e[1].Op != "removed" && e[2].Op != "removed" {
		t.Errorf("%s", out.String())
	}
}
