package cli

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestProgressWaitsAndLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var short, long strings.Builder
		p := begin(&short, "merging")
		<-time.After(patience - 1)
		p.stop()
		if short.Len() > 0 {
			t.Errorf("less than a second said %q", &short)
		}
		p = begin(&long, "merging")
		for range 3 {
			_ = p.step("stage")
		}
		<-time.After(patience + 1)
		_ = p.step("rename")
		<-time.After(refresh)
		p.stop()
		const erase = "\r\x1b[K"
		if want := erase + "skep: copying: 3 paths" + erase + "skep: putting in place ..." + erase; long.String() != want {
			t.Errorf("said %q, want %q", &long, want)
		}
		var none *progress
		_ = none.step("stage")
		none.stop()
	})
}
