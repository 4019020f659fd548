package boundary

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"skep.dev/skep/internal/testlab"
)

// answers reads what attempts that were made abreast came to.
func answers(t *testing.T, r result) (words []string, millis []int64) {
	t.Helper()
	for _, one := range strings.Fields(r.Got) {
		word, ms, _ := strings.Cut(one, ":")
		var n int64
		if _, err := fmt.Sscan(ms, &n); err != nil {
			t.Fatalf("%+v: %v", r, err)
		}
		words, millis = append(words, word), append(millis, n)
	}
	return words, millis
}

// TestBC47HoldInACell: a connect to what a person is asked about waits for the answer, in
// both families, by name and by address: it opens after a yes, and is refused after a no or
// when its time is over. What is one too many is refused at once.
func TestBC47HoldInACell(t *testing.T) {
	testlab.Test(t, func(t *testing.T, lab *testlab.Lab) {
		for name, to := range map[string]string{"yes.test": public4, "six.test": public6, "no.test": public4, "late.test": public4, "many.test": public4, "once.test": public4} {
			lab.Host(name, to)
		}
		lab.Echo(public4 + ":7080")
		lab.Echo("[" + public6 + "]:7080")
		h := open(t, lab, "net:\n  - {suffix: \"*.test\", ports: [7080], ask: true, hold: 20s}\n  - {name: late.test, ports: [7080], ask: true, hold: 2s}\n"+
			"  - {cidr: 93.184.216.0/24, ports: [7080], ask: true, hold: 20s}\n")
		run := func(attempts ...attempt) chan []result {
			done := make(chan []result, 1)
			go func() { done <- h.try(attempts...) }()
			return done
		}
		at := func(to string, n int) attempt { return attempt{How: "abreast", At: to, N: n} }

		done := run(at("yes.test:7080", 3), at("six.test:7080", 1), at(public4+":7080", 2), at("no.test:7080", 1), at("no.test:7080", 1), at("once.test:7080", 1), at("once.test:7080", 1), at("late.test:7080", 2))
		for _, q := range []struct{ name, how string }{{"yes.test", "--cell"}, {"six.test", "--cell"}, {public4, "--cell"}, {"no.test", "--deny"}, {"once.test", "--once"}, {"once.test", "--deny"}} {
			c := h.asked(q.name)
			if len(lab.Connections()) > 0 && q.name == "yes.test" {
				t.Error("it is open before the answer")
			}
			h.Skep("approve", c.ID, c.Hash, q.how)
		}
		r := <-done
		for i, want := range []string{"open open open", "open", "open open", "ECONNREFUSED", "ECONNREFUSED", "open", "ECONNREFUSED", "ECONNREFUSED ECONNREFUSED"} {
			words, millis := answers(t, r[i])
			if strings.Join(words, " ") != want {
				t.Errorf("%s: %v, want %s", r[i].At, words, want)
			}
			switch last := millis[len(millis)-1]; {
			case i == 4 && last > 500:
				t.Errorf("what was denied is held for %d ms", last)
			case i == 7 && (millis[0] < 2000 || last > 3900):
				t.Errorf("a hold of 2 s took %v ms", millis)
			}
		}
		var held, denied int
		for _, e := range h.record() {
			switch e.Kind {
			case "flow.held":
				held++
				if e.Body["reason"] != "approval-needed" || e.Body["decision"] != "ask" {
					t.Errorf("%v", e)
				}
			case "flow.denied":
				denied++
			}
		}
		if held < 6 || denied == 0 {
			t.Errorf("%d attempts are recorded as held, %d as denied", held, denied)
		}
		h.refused(h.record(), "late.test:7080", "approval-needed")
		h.refused(h.record(), "no.test:7080", "approval-denied")

		// One more than may wait is refused at once, and the others go on.
		done = run(at("many.test:7080", 33))
		c := h.asked("many.test")
		<-time.After(1500 * time.Millisecond) // all of them try, and again
		h.Skep("approve", c.ID, c.Hash, "--cell")
		words, millis := answers(t, (<-done)[0])
		if words[0] != "ECONNREFUSED" || millis[0] > 900 || strings.Count(strings.Join(words, " "), "open") != 32 {
			t.Errorf("%v after %v ms", words, millis)
		}
	})
}
