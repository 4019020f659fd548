package cli

import "testing"

// A terminal shows one line a cell; a pipe gets all of it.
func TestNarrow(t *testing.T) {
	const table = "CELL  PROGRAM\nabcd  größer als breit\n"
	for columns, want := range map[int]string{
		0:  table,
		80: table,
		12: "CELL  PROGR…\nabcd  größe…\n",
	} {
		if got := narrow(table, columns); got != want {
			t.Errorf("%d columns: %q, want %q", columns, got, want)
		}
	}
}
