package strict

import (
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"
)

// Count takes a positive integer; 200_000 is allowed.
func (r *Report) Count(n *Node, what, example string) (int64, bool) {
	if n.Kind != Int {
		r.wrong(n, what, "an integer", example)
		return 0, false
	}
	v, ok := decimal(n.Text, 0)
	if !ok {
		r.Fault(n, fmt.Sprintf("%s is not a whole number that can be held: %s", what, n.Text), "for example "+example)
		return 0, false
	}
	return r.positive(n, what, v)
}

// Fixed takes a positive decimal number with at most the given digits after
// the point, and gives it in units of the last one: 5.00 with 6 digits is
// 5,000,000. No floating point is involved (R10).
func (r *Report) Fixed(n *Node, what, example string, digits int) (int64, bool) {
	if n.Kind != Int && n.Kind != Float {
		r.wrong(n, what, "a number", example)
		return 0, false
	}
	v, ok := decimal(n.Text, digits)
	if !ok {
		r.Fault(n, fmt.Sprintf("%s cannot be %s", what, n.Text),
			fmt.Sprintf("write a positive number with at most %d digits after the point, such as %s", digits, example))
		return 0, false
	}
	return r.positive(n, what, v)
}

// Size takes bytes with a binary unit: 4GiB.
func (r *Report) Size(n *Node, what, example string) (int64, bool) {
	return r.measured(n, what, example, "B, KiB, MiB, GiB or TiB", sizeUnits())
}

// Time takes a length of time and gives milliseconds: 30m, 1h30m, 500ms.
func (r *Report) Time(n *Node, what, example string) (int64, bool) {
	return r.measured(n, what, example, "ms, s, m, h or d", timeUnits())
}

type unit struct {
	name  string
	scale int64
}

// Largest first: printing takes the first that divides, parsing of "1h30m"
// wants the units to fall.
func sizeUnits() []unit {
	return []unit{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}}
}

func timeUnits() []unit {
	return []unit{{"d", 86_400_000}, {"h", 3_600_000}, {"m", 60_000}, {"s", 1000}, {"ms", 1}}
}

func (r *Report) measured(n *Node, what, example, names string, units []unit) (int64, bool) {
	switch n.Kind {
	case String:
	case Int, Float:
		r.Fault(n, fmt.Sprintf("%s has no unit: %s", what, n.Text), "add one of "+names+", for example "+example)
		return 0, false
	default:
		r.wrong(n, what, "an amount with a unit", example)
		return 0, false
	}
	v, ok := measure(n.Text, units)
	if !ok {
		fix := "write whole numbers with " + names + ", for example " + example
		if s := strings.TrimRight(n.Text, "Bb"); len(s) > 1 && units[0].name == "TiB" && strings.ContainsAny(s[len(s)-1:], "kKmMgGtT") {
			fix = "units are binary here: did you mean " + s[:len(s)-1] + strings.ToUpper(s[len(s)-1:]) + "iB?"
		}
		r.Fault(n, fmt.Sprintf("%s cannot be %q", what, n.Text), fix)
		return 0, false
	}
	return r.positive(n, what, v)
}

func (r *Report) positive(n *Node, what string, v int64) (int64, bool) {
	if v <= 0 {
		r.Fault(n, what+" must be more than 0", "leave the key out, or write a positive amount")
		return 0, false
	}
	return v, true
}

// measure reads whole numbers, each followed by a unit, units falling.
func measure(s string, units []unit) (int64, bool) {
	var total int64
	next := 0
	for s != "" {
		i := strings.IndexFunc(s, func(c rune) bool { return (c < '0' || c > '9') && c != '_' })
		if i <= 0 {
			return 0, false
		}
		v, ok := decimal(s[:i], 0)
		if !ok {
			return 0, false
		}
		s = s[i:]
		j := strings.IndexFunc(s, func(c rune) bool { return c >= '0' && c <= '9' })
		if j < 0 {
			j = len(s)
		}
		for next < len(units) && units[next].name != s[:j] {
			next++
		}
		if next == len(units) {
			return 0, false
		}
		hi, lo := bits.Mul64(uint64(v), uint64(units[next].scale))
		if hi != 0 || lo > math.MaxInt64-uint64(total) {
			return 0, false
		}
		total += int64(lo)
		next++
		s = s[j:]
	}
	return total, true
}

// decimal reads digits with single underscores between them and, if digits is
// above 0, a point; the result counts units of 10^-digits. A leading zero is
// refused: to some readers of YAML 010 is eight.
func decimal(s string, digits int) (int64, bool) {
	whole, fraction, point := strings.Cut(s, ".")
	if !grouped(whole) || len(whole) > 1 && whole[0] == '0' || len(fraction) > digits || point && !grouped(fraction) || strings.Contains(fraction, "_") {
		return 0, false
	}
	text := strings.ReplaceAll(whole, "_", "") + fraction + strings.Repeat("0", digits-len(fraction))
	v, err := strconv.ParseUint(text, 10, 63)
	return int64(v), err == nil
}

func grouped(s string) bool {
	if s == "" {
		return false
	}
	for i := range len(s) {
		digit := s[i] >= '0' && s[i] <= '9'
		inner := s[i] == '_' && i > 0 && i < len(s)-1 && s[i-1] != '_'
		if !digit && !inner {
			return false
		}
	}
	return true
}

// FormatSize and FormatTime print what Size and Time read back: the largest
// unit that divides exactly.
func FormatSize(bytes int64) string { return format(bytes, sizeUnits()) }

// FormatTime prints milliseconds.
func FormatTime(ms int64) string { return format(ms, timeUnits()) }

func format(v int64, units []unit) string {
	for _, u := range units {
		if v%u.scale == 0 {
			return strconv.FormatInt(v/u.scale, 10) + u.name
		}
	}
	return strconv.FormatInt(v, 10)
}

// FormatFixed prints what Fixed reads back.
func FormatFixed(v int64, digits int) string {
	s := fmt.Sprintf("%0*d", digits+1, v)
	whole, fraction := s[:len(s)-digits], strings.TrimRight(s[len(s)-digits:], "0")
	if fraction == "" {
		return whole
	}
	return whole + "." + fraction
}
