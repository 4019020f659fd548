package connector

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"time"

	"skep.dev/skep/internal/route"
	"skep.dev/skep/internal/tunnel"
)

// options are the flags of run and serve.
type options struct {
	socket, tcp, bundle string // run
	allow               []string
	control, dir        string // serve

	issuer, audience, ca string
	unverified           bool
	ceiling, records     string
	ledger               bool
	lost                 <-chan struct{} // of the ledger; nil: never
	metrics              string
	udp                  bool
	owner                int
	flows                int
	head, idle           time.Duration
	generation           uint64
	slice                int    // -1: none
	ingress, guest       string // of agents that serve
	form                 tunnel.Form
	monitor              uint
}

// usage is what a person sees who asks, or who types something else.
const usage = `skep-box run --socket PATH (--bundle FILE | --egress-allow HOST:PORT ...) [FLAGS]
    serves the boundary of one cell until SIGTERM; SIGHUP reads the bundle again
skep-box serve --control PATH --dir DIR [FLAGS]
    serves the connector API at a control socket, and gives each agent a boundary below DIR
skep-box explain --bundle FILE [--ceiling FILE]
    says what a bundle allows
skep-box denials --records FILE
    prints the rules that would have allowed what was refused
skep-box limits
    prints every limit of the boundary
`

// parse reads the flags of a command, and refuses what contradicts itself.
func parse(command string, args []string, stderr io.Writer) (options, error) {
	o := options{slice: -1}
	f := flag.NewFlagSet("skep-box "+command, flag.ContinueOnError)
	f.SetOutput(stderr)
	f.Usage = func() {
		fmt.Fprint(stderr, usage, "\nflags:\n")
		f.PrintDefaults()
	}
	if command == "run" {
		f.StringVar(&o.socket, "socket", "", "the cell's socket: at most 104 bytes, in a directory of its own")
		f.StringVar(&o.tcp, "insecure-tcp-listener", "", "instead of --socket an address of loopback, such as 127.0.0.1:3128, which all programs of the host reach")
		f.StringVar(&o.bundle, "bundle", "", "YAML that names the agent and what it may reach")
		f.Func("egress-allow", "host:port, host or *.x that a cell without a bundle may reach; may be repeated", func(s string) error {
			o.allow = append(o.allow, s)
			return nil
		})
		f.StringVar(&o.ingress, "ingress-socket", "", "where callers reach an agent that serves: in a directory of its own, which the cell does not see")
		f.StringVar(&o.guest, "agent-ingress-socket", "", "socket of the agent's side, where skep-init takes what is delivered; if and only if the bundle says serves")
		f.Uint64Var(&o.generation, "generation", 1, "number of this life of the cell; a successor has a greater one")
		f.IntVar(&o.slice, "pool-slice", -1, "slice of the address pools that skep-init is given, to be recorded; no two generations of a cell have the same")
	} else {
		f.StringVar(&o.control, "control", "", "the control socket, which no cell may see")
		f.StringVar(&o.dir, "dir", "", "directory with a directory for each agent's socket")
		f.StringVar(&o.guest, "agent-ingress-socket", "", "name, in each agent's directory, of the socket of the agent's side, where skep-init takes what is delivered; without it no agent that serves is attached")
	}
	f.StringVar(&o.issuer, "credential-issuer", "", "https URL of the OIDC issuer of credentials")
	f.StringVar(&o.audience, "credential-audience", "", "audience that a credential must name")
	f.StringVar(&o.ca, "credential-ca", "", "PEM file of the certificates that the issuer's is judged by, instead of the host's")
	f.BoolVar(&o.unverified, "insecure-unverified-bundle", false, "believe the bundle about who the agent is")
	f.StringVar(&o.ceiling, "ceiling", "", "ceiling that no bundle passes (default /etc/skep/ceiling.yaml, if it is there)")
	f.StringVar(&o.records, "records", "-", "file to append records to; - is the standard output")
	f.BoolVar(&o.ledger, "ledger", false, "instead of --records: each agent is a cell of the signed ledger of this user's skepd, which has to run")
	f.StringVar(&o.metrics, "metrics", "", "path of a socket, or an address of loopback, that serves /metrics; off without it")
	f.IntVar(&o.owner, "socket-uid", 0, "user on this host that sockets and their directories belong to, as a cell's mapped root; as root only")
	f.Func("ingress-form", "of the handshake with the agent's side: http, text, or both, where http is spoken (default both)", func(s string) (err error) {
		o.form, err = tunnel.ParseForm(s)
		return err
	})
	f.UintVar(&o.monitor, "agent-ingress-vsock-port", 0, "the agent's socket is that of a VM's monitor, which is asked for this port of the guest first")
	f.BoolVar(&o.udp, "udp", false, "serve connect-udp")
	f.IntVar(&o.flows, "max-flows", 0, "open connections of one cell, at most and by default 1024")
	f.DurationVar(&o.head, "head-time", 0, "for a request head, at most and by default 15s")
	f.DurationVar(&o.idle, "idle-time", 0, "after which an idle flow is closed, at most and by default 1h (UDP: 2m)")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	return o, o.check(command)
}

// check finds what is missing and what contradicts itself (B211 to B213).
func (o options) check(command string) error {
	named := o.issuer != "" || o.audience != ""
	switch {
	case command == "run" && (o.socket == "") == (o.tcp == ""):
		return errors.New("give --socket, where the cell reaches its boundary (or --insecure-tcp-listener)")
	case command == "run" && (o.bundle == "") == (len(o.allow) == 0):
		return errors.New("give either --bundle or --egress-allow")
	case command == "serve" && !o.ledger && (o.control == "" || o.dir == ""):
		return errors.New("give --control and --dir, or --ledger, with which both have a place below skepd's")
	case o.unverified && (named || o.ca != ""):
		return errors.New("--insecure-unverified-bundle verifies nothing: remove it, or --credential-issuer, --credential-audience and --credential-ca")
	case len(o.allow) > 0 && (named || o.unverified):
		return errors.New("a cell without a bundle has no credential: remove --credential-issuer, --credential-audience and --insecure-unverified-bundle")
	case len(o.allow) == 0 && !o.unverified && (o.issuer == "" || o.audience == ""):
		return errors.New("a bundle is verified: give --credential-issuer and --credential-audience, or --insecure-unverified-bundle to believe it")
	case o.owner != 0 && (o.owner < 0 || os.Geteuid() != 0):
		return errors.New("--socket-uid takes the number of a user, and only root can give a socket away")
	case command == "run" && (o.generation == 0 || o.slice < -1 || o.slice >= route.Slices):
		return fmt.Errorf("--generation is 1 or more, and --pool-slice 0 to %d", route.Slices-1)
	case o.ingress != "" && o.guest == "" && command == "run":
		return errors.New("--ingress-socket leads nowhere without --agent-ingress-socket")
	case command == "serve" && strings.ContainsRune(o.guest, '/'):
		return errors.New("--agent-ingress-socket of serve is a name in each agent's directory, without /")
	case command == "run" && o.guest != "" && (o.bundle == "" || o.ingress == ""):
		return errors.New("--agent-ingress-socket is for a bundle that serves, and needs --ingress-socket, where its callers come to")
	case o.monitor > math.MaxUint32:
		return errors.New("--agent-ingress-vsock-port is no port of a vsock")
	case o.flows < 0 || o.head < 0 || o.idle < 0:
		return errors.New("a limit cannot be negative")
	case o.ledger && o.records != "-":
		return errors.New("give either --records or --ledger")
	case strings.TrimSpace(o.records) == "":
		return errors.New("--records names no file")
	}
	return nil
}
