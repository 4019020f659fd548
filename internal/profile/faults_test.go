package profile

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// Each archive holds profiles and, beside each, all that is said about it.
// The whole text is compared: position, message, fix, line and caret.
func TestFaults(t *testing.T) {
	files, err := filepath.Glob("testdata/faults/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("no archives", err)
	}
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		golden := map[string]string{}
		var out txtar.Archive
		out.Comment = archive.Comment
		for _, f := range archive.Files {
			golden[f.Name] = string(f.Data)
		}
		for _, f := range archive.Files {
			name, isProfile := strings.CutSuffix(f.Name, ".yaml")
			if !isProfile {
				continue
			}
			p, faults := ParseAt(f.Name, Place{Dir: testDir, Home: "/home/ada"}, f.Data)
			if (p == nil) == (faults == nil) {
				t.Errorf("%s: %s: profile %v, faults %v", file, f.Name, p, faults)
			}
			got := faults.Render()
			if diff := cmp.Diff(golden[name+".txt"], got); diff != "" && !*update {
				t.Errorf("%s: %s:\n%s", file, f.Name, diff)
			}
			for _, fault := range faults {
				if fault.Line < 1 || fault.Column < 1 || fault.Message == "" || fault.Fix == "" || fault.Source == "" {
					t.Errorf("%s: %s: fault without place, message, fix or line: %+v", file, f.Name, fault)
				}
			}
			out.Files = append(out.Files, f, txtar.File{Name: name + ".txt", Data: []byte(got)})
		}
		if *update {
			if err := os.WriteFile(file, txtar.Format(&out), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestFaultsAsJSON(t *testing.T) {
	_, faults := ParseAt("build.yaml", Place{Dir: testDir}, []byte("version: v1\npathes: []\n"))
	data, err := json.Marshal(faults)
	want := `[{"file":"build.yaml","line":2,"column":1,"text":"pathes","message":"unknown key \"pathes\"",` +
		`"fix":"did you mean \"paths\"?","source":"pathes: []"}]`
	if err != nil || string(data) != want {
		t.Errorf("%s, %v", data, err)
	}
}

// A repository's profile cannot write to the terminal of who reads its faults
// (L18a).
func TestFaultsAreEscaped(t *testing.T) {
	for _, src := range []string{
		"pa\u202eths: 1\n", "home: \"a\\e]0;x\\a\"\n", "home: 'x\u200b'\n", "home: \x1b[2J\n", "home: \x9b\n", "a: \xff\n",
	} {
		_, faults := ParseAt("f.yaml", Place{Dir: testDir}, []byte(src))
		if faults == nil {
			t.Errorf("%q is accepted", src)
		}
		for _, c := range faults.Render() {
			if c < ' ' && c != '\n' || c >= 0x7f {
				t.Errorf("%q renders %q", src, faults.Render())
				break
			}
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(whole))
	for _, name := range Names() {
		src, err := ShippedSource(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(src)
	}
	files, _ := filepath.Glob("testdata/faults/*.txtar")
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			f.Fatal(err)
		}
		for _, member := range archive.Files {
			f.Add(member.Data)
		}
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		p, faults := ParseAt("f.yaml", Place{Dir: testDir, Home: "/home/ada"}, src)
		if (p == nil) == (faults == nil) {
			t.Fatalf("profile %v, faults %v", p, faults)
		}
		_ = faults.Render()
		if p == nil {
			return
		}
		effective := p.Effective()
		again, faults := ParseAt("effective", Place{}, []byte(effective))
		if faults != nil {
			t.Fatalf("the effective form is refused:\n%s\n%s", effective, faults.Render())
		}
		if again.Digest() != p.Digest() {
			t.Fatalf("digest changes:\n%s\n%s", effective, again.Effective())
		}
	})
}
