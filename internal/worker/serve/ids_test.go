package serve

import (
	"os"
	"path/filepath"
	"testing"
)

// A range among the host's own accounts, too small, or another user's is none.
func TestRangesComeFromTheHostAlone(t *testing.T) {
	user := Account{Name: "skep", UID: 998, GID: 998}
	for text, want := range map[string]uint32{
		"skep:100000:65536\n":                     100000,
		"998:200000:65536\n":                      200000,
		"other:100000:65536\nskep:300000:65536\n": 300000,
		"other:100000:65536\n":                    0,
		"skep:0:65536\n":                          0,
		"skep:1000:65536\n":                       0,
		"skep:100000:10\n":                        0,
		"skep:4294960000:65536\n":                 0,
		"skep:-5:65536\nskep:1e6:65536\n":         0,
		"":                                        0,
	} {
		file := filepath.Join(t.TempDir(), "subuid")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := subordinate(file, user)
		if got != want || (err == nil) != (want != 0) {
			t.Errorf("%q: %d, %v; want %d", text, got, err, want)
		}
	}
}

func TestAccounts(t *testing.T) {
	if a, err := ParseAccount("skep:998:997"); err != nil || a != (Account{"skep", 998, 997}) {
		t.Errorf("%+v %v", a, err)
	}
	for _, text := range []string{"skep", "skep:x:1", "skep:1:-1", ":1:1", "a:1:4294967296"} {
		if a, err := ParseAccount(text); err == nil {
			t.Errorf("%q is %+v", text, a)
		}
	}
}

func TestHierarchyFlags(t *testing.T) {
	for _, text := range []string{"", "3", "x:v1:memory", "1:v1:memory", "3:v3:memory"} {
		if _, err := ParseHierarchy(text); err == nil {
			t.Errorf("%q was read", text)
		}
	}
}
