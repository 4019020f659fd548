package trust

import (
	"encoding/pem"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	pkcs12 "software.sslmate.com/src/go-pkcs12"

	"skep.dev/skep/internal/cell"
	"skep.dev/skep/internal/secret/authority"
	"skep.dev/skep/internal/sys"
)

// TestFurnish: the cell's certificate stands beside the host's where programs look: over a
// file that a grant shows, in a place of its own, and for Java; never instead of them, and
// no variable of the profile is changed.
func TestFurnish(t *testing.T) {
	a, err := authority.New([]string{"a.test"}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	other, err := authority.New([]string{"b.test"}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	s := &cell.Spec{Env: []string{"GIT_SSL_CAINFO=/mine", "PATH=/bin"}}
	if err := Furnish(s, other.Root(), a.Root()); err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for _, f := range s.Files {
		files[f.Path] = f.Content
	}
	if n := strings.Count(string(files[bundle]), "BEGIN CERTIFICATE"); n != 2 || string(files[alone]) != string(a.Root()) {
		t.Errorf("%d certificates", n)
	}
	certs, err := pkcs12.DecodeTrustStore(files[java], "")
	if err != nil || len(certs) != 2 {
		t.Errorf("%d certificates for Java, %v", len(certs), err)
	}
	if block, _ := pem.Decode(files[alone]); block == nil || string(certs[1].Raw) != string(block.Bytes) {
		t.Error("the store has another certificate")
	}
	if !slices.Contains(s.Env, "GIT_SSL_CAINFO=/mine") || !slices.Contains(s.Env, "SSL_CERT_FILE="+bundle) || !slices.Contains(s.Env, "NODE_EXTRA_CA_CERTS="+alone) || !slices.IsSorted(s.Env) {
		t.Errorf("%q", s.Env)
	}
}

// What a grant shows is covered where a plain file stands there and nothing hides it.
func TestShow(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	file, link := filepath.Join(dir, "ca.crt"), filepath.Join(dir, "link")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("ca.crt", link); err != nil {
		t.Fatal(err)
	}
	object, err := sys.OpenPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer object.Close()
	granted := cell.Spec{Grants: []cell.Grant{{Path: dir, Dir: true, Object: object}}}
	for name, c := range map[string]struct {
		spec          cell.Spec
		at            string
		covers, links int
	}{
		"a file of a grant": {granted, file, 1, 0}, "a link in a grant": {granted, link, 1, 0}, "no grant": {cell.Spec{}, file, 0, 1}, "nothing there": {granted, file + "x", 0, 0},
		"a directory": {granted, dir, 0, 0}, "hidden": {cell.Spec{Grants: granted.Grants, Narrow: []cell.Narrow{{Path: dir, Kind: cell.Hidden}}}, file, 0, 0},
	} {
		s := c.spec
		show(&s, c.at, bundle)
		show(&s, c.at, bundle)
		if len(s.Covers) != c.covers || len(s.Links) != c.links || c.covers == 1 && s.Covers[0] != (cell.Cover{Path: file, File: bundle}) {
			t.Errorf("%s: %v %v", name, s.Covers, s.Links)
		}
	}
}
