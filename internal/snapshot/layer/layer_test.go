package layer_test

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"skep.dev/skep/internal/snapshot"
	"skep.dev/skep/internal/snapshot/layer"
	"skep.dev/skep/internal/snapshot/layertest"
)

func TestMain(m *testing.M) { layertest.Main(m) }

func all(int, string) bool { return true }

// A layer process under its filter walks, opens and removes what an agent has
// made hard to reach: mode 000, deep, with odd names.
func TestConfinedLayerProcess(t *testing.T) {
	layertest.Roles(t, func(t *testing.T) {
		base, dir := t.TempDir(), t.TempDir()
		must(t, layertest.Do(base,
			layertest.Op{Kind: "write", Path: "kept", To: "kept", Mode: 0o644},
			layertest.Op{Kind: "write", Path: "edited", To: "old", Mode: 0o644},
			layertest.Op{Kind: "mkdir", Path: "gone", Mode: 0o755},
			layertest.Op{Kind: "write", Path: "gone/a", To: "a", Mode: 0o644}))
		ops := []layertest.Op{
			{Kind: "append", Path: "edited", To: " new"},
			{Kind: "removeall", Path: "gone"},
			{Kind: "mkdir", Path: "shut", Mode: 0o755},
			{Kind: "write", Path: "shut/secret", To: "hidden", Mode: 0},
			{Kind: "write", Path: "shut/big", To: strings.Repeat("x", 1<<16), Mode: 0o644},
			{Kind: "fifo", Path: "pipe"},
			{Kind: "write", Path: ".wh.x", To: "no whiteout", Mode: 0o644},
			{Kind: "write", Path: "n\nl\xff", To: "odd", Mode: 0o644},
			{Kind: "chmod", Path: "kept", Mode: 0o600},
			{Kind: "chmod", Path: "kept", Mode: 0o644}, // copied up, equal again
			{Kind: "chmod", Path: "shut", Mode: 0},
		}
		_, failed, err := layertest.Start(t).Run(base, dir, ops)
		must(t, err)
		if strings.Join(failed, "") != "" {
			t.Fatalf("ops answered %q", failed)
		}
		client := layertest.Confined(t, base, dir)
		d, err := snapshot.Diff(context.Background(), client, []string{"/w"}, all)
		must(t, err)
		var got []string
		for i := range d.Entries {
			got = append(got, d.Entries[i].Op().String()+" "+d.Entries[i].Path)
		}
		want := []string{
			"added .wh.x", "changed edited", "removed gone", "removed gone/a", "added n\nl\xff", "added pipe",
			"added shut", "added shut/big", "added shut/secret",
		}
		if !slices.Equal(got, want) {
			t.Errorf("entries %q, want %q", got, want)
		}
		opens(t, client)
		held, err := client.Measure(context.Background())
		must(t, err)
		if held < 1<<16 || held > 1<<18 {
			t.Errorf("64 KiB in a closed directory, beside some small files, is measured as %d bytes", held)
		}
		must(t, client.Remove(context.Background()))
		if left, _ := os.ReadDir(dir); len(left) != 0 {
			t.Errorf("removal left %v", left)
		}
	})
}

func opens(t *testing.T, client *layer.Client) {
	t.Helper()
	ctx := context.Background()
	f, err := client.Open(ctx, snapshot.LayerSide, 0, "shut/secret")
	must(t, err)
	defer f.Close()
	if content, _ := io.ReadAll(f); string(content) != "hidden" {
		t.Errorf("read %q", content)
	}
	if _, err := f.Write([]byte("x")); err == nil {
		t.Error("an opened file can be written")
	}
	for path, code := range map[string]layer.Code{
		"pipe": layer.NotRegular, "shut": layer.NotRegular, "gone/a": layer.NotFound,
		"../upper/edited": layer.Internal, "/etc/passwd": layer.Internal, "edited/": layer.Internal,
	} {
		var failure *layer.Failure
		if _, err := client.Open(ctx, snapshot.LayerSide, 0, path); !errors.As(err, &failure) || failure.Code != code {
			t.Errorf("open %q: %v, want code %d", path, err, code)
		}
	}
}

// A tree deeper than any path and any descriptor table is removed.
func TestRemoveVeryDeepTree(t *testing.T) {
	layertest.Roles(t, func(t *testing.T) {
		dir := t.TempDir()
		must(t, os.MkdirAll(filepath.Join(dir, "upper"), 0o755))
		at, err := os.OpenRoot(filepath.Join(dir, "upper"))
		must(t, err)
		name := strings.Repeat("d", 100)
		for range 1500 {
			must(t, at.Mkdir(name, 0o755))
			next, err := at.OpenRoot(name)
			must(t, err)
			at.Close()
			at = next
		}
		at.Close()
		client := layertest.Confined(t, t.TempDir(), dir)
		var refused int
		err = client.Walk(context.Background(), func(e snapshot.Entry) error {
			if e.Refused != "" {
				refused++
			}
			return nil
		})
		if err != nil || refused != 1 {
			t.Errorf("of a path over the bound %d are refused, %v", refused, err)
		}
		must(t, client.Remove(context.Background()))
		if left, _ := os.ReadDir(dir); len(left) != 0 {
			t.Errorf("removal left %v", left)
		}
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
