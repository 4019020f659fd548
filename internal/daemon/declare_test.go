package daemon

import (
	"os"
	"path/filepath"
	"testing"
)

// A cell whose declaration cannot be recorded is not started, and leaves nothing of what
// was made for it meanwhile (L3).
func TestUnwritableLedgerStartsNoCell(t *testing.T) {
	l := newLab(t).start()
	q := l.request("", "/bin/true")
	if err := l.daemon.ledger.Close(); err != nil {
		t.Fatal(err)
	}
	if c, err := l.run(q); err == nil {
		t.Errorf("ran %v without a record", c)
	}
	if n := len(l.driver.Started()); n > 0 {
		t.Errorf("%d cells were started", n)
	}
	for _, dir := range []string{l.config.State, l.config.Run} { // it is furnished beside the record
		if left, err := os.ReadDir(filepath.Join(dir, "cells")); err != nil && !os.IsNotExist(err) || len(left) > 0 {
			t.Errorf("%v is left in %s, %v", left, dir, err)
		}
	}
}
