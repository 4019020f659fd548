package start

import (
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math"
	"strconv"
	"strings"
	"syscall"
	"time"

	"skep.dev/skep/guest/channel"
	dns "skep.dev/skep/internal/route"
	"skep.dev/skep/internal/tunnel"
)

// UsageError is a command line that cannot be understood.
type UsageError struct{ Err error }

func (e *UsageError) Error() string {
	return e.Err.Error() + "\nusage: skep-init run [flags] BOUNDARY COMMAND [ARGUMENTS]\n       skep-init check [flags] BOUNDARY\n       skep-init copy DESTINATION"
}

func (e *UsageError) Unwrap() error { return e.Err }

// settings are the flags of run and check (guest.md, section 1).
type settings struct {
	createNamespaces bool
	udp              bool
	statement        bool
	generation       uint64 // 0: none was given
	slice            int    // of the address pools; -1: all of them
	log              slog.Level
	ready, grace     time.Duration
	user             *syscall.Credential
	explicit         bool
	caBundle         string
	ingress          string // where to listen; empty: nothing is served
	ingressPort      uint16
	ingressForm      tunnel.Form

	boundary channel.Boundary
	command  []string
}

// parse reads flags, the boundary, and all after it for the agent (G3).
func parse(args []string, command bool) (settings, error) {
	s := settings{slice: -1}
	var user, form, by string
	var port uint
	f := flag.NewFlagSet("skep-init", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.BoolVar(&s.createNamespaces, "create-namespaces", false, "")
	f.BoolVar(&s.udp, "udp", false, "")
	f.BoolVar(&s.statement, "statement", false, "")
	f.Uint64Var(&s.generation, "generation", 0, "")
	f.IntVar(&s.slice, "pool-slice", -1, "")
	f.DurationVar(&s.ready, "ready", 10*time.Second, "")
	f.DurationVar(&s.grace, "grace", 5*time.Second, "")
	f.StringVar(&user, "user", "", "")
	f.StringVar(&by, "route", "tun", "")
	f.StringVar(&s.caBundle, "ca-bundle", "", "")
	f.StringVar(&s.ingress, "ingress-socket", "", "")
	f.UintVar(&port, "ingress-port", 0, "")
	f.StringVar(&form, "ingress-form", "both", "")
	f.TextVar(&s.log, "log-level", slog.LevelWarn, "")
	if err := f.Parse(args); err != nil {
		return s, &UsageError{err}
	}
	rest := f.Args()
	s.explicit = by == "explicit"
	if s.statement && !command && len(rest) == 0 {
		return s, nil
	}
	if len(rest) < 1 || command && len(rest) < 2 {
		return s, &UsageError{fmt.Errorf("the boundary and the command are missing")}
	}
	if !command && len(rest) > 1 {
		return s, &UsageError{fmt.Errorf("check takes no command")}
	}
	var err error
	if s.boundary, err = channel.Parse(rest[0]); err != nil {
		return s, &UsageError{err}
	}
	if s.user, err = parseUser(user); err != nil {
		return s, &UsageError{err}
	}
	if s.ingressForm, err = tunnel.ParseForm(form); err != nil {
		return s, &UsageError{err}
	}
	switch {
	case by != "tun" && by != "explicit":
		return s, &UsageError{fmt.Errorf("--route %q: want tun or explicit", by)}
	case (s.ingress == "") != (port == 0):
		return s, &UsageError{fmt.Errorf("--ingress-socket and --ingress-port go together")}
	case port > math.MaxUint16:
		return s, &UsageError{fmt.Errorf("--ingress-port %d: want 1 to 65535", port)}
	case by == "explicit" && s.udp:
		return s, &UsageError{fmt.Errorf("--udp needs the tun route")}
	case by == "explicit" && s.slice >= 0:
		return s, &UsageError{fmt.Errorf("--pool-slice needs the tun route: the explicit one gives no addresses out")}
	case s.slice < -1 || s.slice >= dns.Slices:
		return s, &UsageError{fmt.Errorf("--pool-slice %d: want 0 to %d", s.slice, dns.Slices-1)}
	}
	s.ingressPort = uint16(port)
	s.command = rest[1:]
	return s, nil
}

// parseUser takes "UID:GID".
func parseUser(s string) (*syscall.Credential, error) {
	if s == "" {
		return nil, nil
	}
	uid, gid, ok := strings.Cut(s, ":")
	u, uidErr := strconv.ParseUint(uid, 10, 32)
	g, gidErr := strconv.ParseUint(gid, 10, 32)
	if !ok || uidErr != nil || gidErr != nil {
		return nil, fmt.Errorf("--user %q: want UID:GID in numbers", s)
	}
	return &syscall.Credential{Uid: uint32(u), Gid: uint32(g), Groups: []uint32{}}, nil
}
