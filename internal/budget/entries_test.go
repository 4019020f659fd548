package budget

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// state is all that can be asked of a machine.
func state(t *rapid.T, m *Machine, ids []string) (all []any) {
	for _, id := range ids {
		totals, err := m.Totals(id)
		all = append(all, totals, fmt.Sprint(err))
	}
	holds := map[HoldID]Held{}
	for _, h := range m.Holds() {
		holds[h.Hold] = h
	}
	for _, id := range slices.Sorted(maps.Keys(holds)) {
		all = append(all, holds[id])
	}
	return all
}

// A machine of the entries is the machine that told them, and gives no hold a number
// that another had.
func TestEntriesMakeTheSameMachine(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := New(nil)
		var ids []string
		var holds []HoldID
		for i := range rapid.IntRange(1, 5).Draw(t, "accounts") {
			id, parent := fmt.Sprint("a", i), ""
			if i > 0 && rapid.Bool().Draw(t, "below") {
				parent = rapid.SampledFrom(ids).Draw(t, "parent")
			}
			if err := m.Open(id, parent, Of(Bytes, rapid.Int64Range(0, 1000).Draw(t, "limit"))); err != nil {
				t.Fatal(err)
			}
			ids = append(ids, id)
		}
		for range rapid.IntRange(0, 20).Draw(t, "steps") {
			if len(holds) > 0 && rapid.Bool().Draw(t, "settle") {
				i := rapid.IntRange(0, len(holds)-1).Draw(t, "hold")
				if _, err := m.Settle(holds[i], Of(Bytes, rapid.Int64Range(0, 300).Draw(t, "used"))); err != nil {
					t.Fatal(err)
				}
				holds = slices.Delete(holds, i, i+1)
			} else if h, err := m.Reserve(rapid.SampledFrom(ids).Draw(t, "of"), Of(Bytes, rapid.Int64Range(0, 300).Draw(t, "amount"))); err == nil {
				holds = append(holds, h)
			}
		}
		again, err := Replay(slices.Values(m.Entries()), nil)
		if err != nil {
			t.Fatal(err)
		}
		if was, is := state(t, m, ids), state(t, again, ids); !reflect.DeepEqual(was, is) {
			t.Errorf("%v became %v", was, is)
		}
		if m.last != again.last {
			t.Errorf("the last hold was %d, and is %d", m.last, again.last)
		}
	})
}
