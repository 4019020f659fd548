package words

import (
	"strconv"

	"skep.dev/skep/internal/strict"
)

// Amount writes an amount of a budget in the unit that a profile has for it.
func Amount(budget string, n int64) string {
	switch budget {
	case "wall", "cpu_time":
		return strict.FormatTime(n)
	case "memory", "disk", "net":
		return strict.FormatSize(n)
	}
	return strconv.FormatInt(n, 10)
}
