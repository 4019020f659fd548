package merging

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"
)

func one(cell string) Merge {
	return Merge{Cell: cell, Hash: "ab", State: "/state", Paths: [][]byte{[]byte("/a\xff")}, At: time.Unix(1, 2).UTC()}
}

func left(t *testing.T, own, state string) []*Pending {
	t.Helper()
	l, err := Left(own, state)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestOnlyWhatNobodyHoldsIsLeft(t *testing.T) {
	own := t.TempDir()
	if l := left(t, own, "/state"); len(l) != 0 {
		t.Fatalf("%v", l)
	}
	p, err := Begin(own, one("cell"))
	if err != nil {
		t.Fatal(err)
	}
	if l := left(t, own, "/state"); len(l) != 0 {
		t.Error("a merge that is under way is left")
	}
	p.Release() // as the end of its process does
	l := left(t, own, "/state")
	if len(l) != 1 || !reflect.DeepEqual(l[0].Merge, one("cell")) {
		t.Fatalf("%+v", l)
	}
	if again := left(t, own, "/state"); len(again) != 0 {
		t.Error("two processes tell of one merge")
	}
	if other := left(t, own, "/other"); len(other) != 0 {
		t.Error("another skepd is told")
	}
	l[0].Release()
	if l = left(t, own, "/state"); len(l) != 1 {
		t.Fatal("a merge that was not told is forgotten")
	}
	if err := l[0].End(); err != nil {
		t.Fatal(err)
	}
	if l = left(t, own, "/state"); len(l) != 0 {
		t.Error("a merge that was told is left")
	}
}

// A later merge of the cell takes the place of one that was never told.
func TestLaterMergeReplaces(t *testing.T) {
	own := t.TempDir()
	for _, hash := range []string{"old", "new"} {
		m := one("cell")
		m.Hash = hash
		p, err := Begin(own, m)
		if err != nil {
			t.Fatal(err)
		}
		p.Release()
	}
	l := left(t, own, "/state")
	if len(l) != 1 || l[0].Hash != "new" {
		t.Fatalf("%+v", l)
	}
	l[0].Release()
}

func TestDamagedIsAnError(t *testing.T) {
	own := t.TempDir()
	p, err := Begin(own, one("cell"))
	if err != nil {
		t.Fatal(err)
	}
	p.Release()
	if err := os.WriteFile(filepath.Join(own, "merging", "damaged"), []byte(`{"cell":1}`), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := Left(own, "/state")
	if err == nil || len(l) != 1 {
		t.Errorf("%v %v", l, err)
	}
}
