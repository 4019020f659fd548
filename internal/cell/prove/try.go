package prove

import (
	"fmt"
	"io"
	"net/netip"
	"os"
	"strings"
	"time"

	"skep.dev/skep/internal/sys"
)

// unlisted is an address of documentation (RFC 5737) that the cell's policy does
// not list. It lies behind lo: where no rule resets what goes there nobody answers,
// and where one redirects it the box does.
const unlisted = "192.0.2.1:443"

// Try runs in the cell: it tries every wall and writes a line for each, `NAME:
// ANSWER`. hostPid is a process outside of the cell.
func Try(w io.Writer, hostPid int) error { return tell(w, attempts(hostPid)) }

func attempts(hostPid int) map[string]func() string {
	return map[string]func() string{
		"mount flags":   mountFlags,
		"Landlock":      landlock,
		"seccomp":       func() string { return answer(sys.AskIOUring()) + " " + answer(sys.AskKeyring()) },
		"capabilities":  capabilities,
		"packet rules":  func() string { return answer(sys.AskAddress(netip.MustParseAddrPort(unlisted))) },
		"pid namespace": func() string { return answer(sys.AskProcess(hostPid)) },
	}
}

func tell(w io.Writer, tried map[string]func() string) error {
	for _, wall := range Walls() {
		if _, err := fmt.Fprintf(w, "%s: %s\n", wall.Name, tried[wall.Name]()); err != nil {
			return err
		}
	}
	return nil
}

// answer is the errno of an attempt, or that it was let through.
func answer(err error) string {
	if err == nil {
		return "done"
	}
	if name := sys.ErrnoName(err); name != "" {
		return name
	}
	return err.Error()
}

// mountFlags: only the mount can say EROFS; an owner that is another says EPERM.
func mountFlags() string { return answer(os.Chtimes(Program, time.Time{}, time.Unix(1, 0))) }

// landlock: the directory is ours, and that its mode can be changed shows that it
// is mounted for writing. So neither mode nor mount can refuse what follows.
func landlock() string {
	if err := os.Chmod(Dir, 0o700); err != nil {
		return "chmod " + answer(err)
	}
	return answer(os.Mkdir(Dir+"/made", 0o700))
}

// capabilities reads proc_pid_status(5): a set that is not there is no empty one.
func capabilities() string {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return answer(err)
	}
	values := map[string]string{}
	for line := range strings.Lines(string(status)) {
		name, value, _ := strings.Cut(line, ":")
		values[name] = strings.TrimSpace(value)
	}
	for _, set := range []string{"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"} {
		if v := values[set]; v == "" || strings.Trim(v, "0") != "" {
			return set + " " + v
		}
	}
	if v := values["NoNewPrivs"]; v != "1" {
		return "NoNewPrivs " + v
	}
	return "none, no_new_privs"
}
