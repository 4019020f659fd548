package traffic

import "testing"

func TestQuantile(t *testing.T) {
	if got := Quantile([]float64{3, 1, 2}, 0.5); got != 2 {
		t.Errorf("median %v", got)
	}
	if got := Quantile(nil, 0.5); got != 0 {
		t.Errorf("of nothing: %v", got)
	}
}
