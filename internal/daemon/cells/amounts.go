package cells

import (
	"fmt"
	"strconv"
	"time"
)

// AmountText writes a budget's amount as a profile does: 20m, 4GiB, 256.
func AmountText(budget string, n int64) string {
	switch budget {
	case "wall", "cpu_time":
		return durationText(time.Duration(n) * time.Millisecond)
	case "memory", "disk", "net":
		return bytesText(n)
	}
	return strconv.FormatInt(n, 10)
}

func durationText(d time.Duration) string {
	switch {
	case d >= time.Hour && d%time.Minute == 0 && d%time.Hour != 0:
		return fmt.Sprintf("%dh%dm", d/time.Hour, d%time.Hour/time.Minute)
	case d >= time.Hour && d%time.Hour == 0:
		return fmt.Sprintf("%dh", d/time.Hour)
	case d >= time.Minute && d%time.Minute == 0:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d%time.Second == 0:
		return fmt.Sprintf("%ds", d/time.Second)
	}
	return fmt.Sprintf("%dms", d/time.Millisecond)
}

func bytesText(n int64) string {
	for i, unit := range []string{"TiB", "GiB", "MiB", "KiB"} {
		if size := int64(1) << (40 - 10*i); n >= size && n%size == 0 {
			return fmt.Sprintf("%d%s", n/size, unit)
		}
	}
	return fmt.Sprintf("%dB", n)
}
