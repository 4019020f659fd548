package traffic

import (
	"slices"
	"time"
)

// Quantile is the nearest-rank quantile, zero of nothing.
func Quantile(figures []float64, q float64) float64 {
	if len(figures) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(figures))
	return sorted[min(int(float64(len(sorted))*q), len(sorted)-1)]
}

// Milliseconds is a duration as a figure.
func Milliseconds(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e6 }
