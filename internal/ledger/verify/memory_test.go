package verify

import (
	"bytes"
	"path/filepath"
	"runtime"
	"testing"

	"skep.dev/skep/internal/ledger"
	"skep.dev/skep/internal/ledger/kind"
)

// cellBytes is what verify keeps of a cell, as docs/ledger.md says.
const cellBytes = 512

// D8: what grows is a proof for each cell, whatever was recorded of it.
func TestMemoryOfACell(t *testing.T) {
	const cells = 300
	dir := filepath.Join(t.TempDir(), "ledger")
	l, err := ledger.Open(dir, ledger.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var all []ledger.Entry
	long := kind.Note{By: "uid:0", Text: kind.Bytes(bytes.Repeat([]byte("x"), 2000))}
	name := []byte("aaaaaaaaaaaaaaaaaaaaaaaaaa")
	for i := range cells {
		for at, n := len(name)-1, i; at > len(name)-5; at, n = at-1, n/26 {
			name[at] = 'a' + byte(n%26)
		}
		all = append(all, ledger.Entry{Cell: string(name), Body: &long}, ledger.Entry{Cell: string(name), Body: &long})
	}
	if err := l.AppendAll(t.Context(), all); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	base := heap()
	v := &verifier{dir: dir, cells: map[string]*proof{}}
	if err := v.run(); err != nil || len(v.cells) != cells {
		t.Fatal(len(v.cells), err)
	}
	grown := heap() - base
	runtime.KeepAlive(v)
	t.Logf("%d bytes a cell", grown/cells)
	if grown > cells*cellBytes {
		t.Errorf("%d cells take %d bytes, over %d each", cells, grown, cellBytes)
	}
}
