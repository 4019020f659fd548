package serve

import (
	"os"
	"strconv"
	"testing"
)

func TestActivatedIsForThisProcessAndOneSocket(t *testing.T) {
	me := strconv.Itoa(os.Getpid())
	for name, c := range map[string]struct {
		pid, fds  string
		activated bool
		fault     bool
	}{
		"nobody's":          {"", "", false, false},
		"another process's": {"1", "1", false, false},
		"ours":              {me, "1", true, false},
		"two sockets":       {me, "2", false, true},
		"none":              {me, "", false, true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Activated(func(v string) string {
				return map[string]string{"LISTEN_PID": c.pid, "LISTEN_FDS": c.fds}[v]
			})
			if got != c.activated || (err != nil) != c.fault {
				t.Errorf("%v, %v", got, err)
			}
		})
	}
}
