package main

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"skep.dev/skep/tests/bench/traffic"
)

// peers are the ways of others, beside our two over a Unix socket: CONNECT, and the tun
// device of a guest. A way that cannot be had here is skipped with its reason.
type peers struct {
	tunnel, tun, direct, pasta, slirp, tun2socks, tinyproxy, squid, smokescreen *client

	stop []func() error
}

// close ends all that was started, the last first.
func (p *peers) close() (err error) {
	for i := len(p.stop) - 1; i >= 0; i-- {
		_ = p.stop[i]() // how a peer ends is its own matter
	}
	return nil
}

// add keeps a client until the end.
func (p *peers) add(c *client) *client {
	if c.close != nil {
		p.stop = append(p.stop, c.close)
	}
	return c
}

// others starts the ways of others around a boundary at a socket.
func others(s *settings, w ways, socket string) *peers {
	p := &peers{direct: w.direct, pasta: w.pasta}
	p.tunnel = p.add(started("tunnel", exec.Command(s.self, roleArgument, "client", server+"@"+socket)))
	p.tun = p.add(started("tun", exec.Command(filepath.Join(s.bin, "skep-init"), "run", "--create-namespaces", socket, s.self, roleArgument, "client", server)))
	p.slirp = p.behindSlirp(s)
	p.tun2socks = missing("tun2socks", filepath.Join(s.bin, "..", "build", "peers", "tun2socks"))
	for _, proxy := range []struct {
		name, at string
		into     **client
		program  string
		config   string
		args     func(config string) []string
	}{
		{"tinyproxy", "127.0.0.1:8888", &p.tinyproxy, "tinyproxy",
			"Port 8888\nListen 127.0.0.1\nTimeout 600\nMaxClients 200\nLogLevel Error\nDisableViaHeader Yes\n",
			func(config string) []string { return []string{"-d", "-c", config} }},
		{"squid", "127.0.0.1:3128", &p.squid, "squid",
			"http_port 127.0.0.1:3128\nhttp_access allow all\ncache deny all\naccess_log none\ncache_log /dev/null\npid_filename none\nshutdown_lifetime 0 seconds\nnetdb_filename none\n",
			func(config string) []string { return []string{"-N", "-f", config} }},
		{"smokescreen", "127.0.0.1:4750", &p.smokescreen, filepath.Join(s.bin, "..", "build", "peers", "smokescreen"), "",
			func(string) []string {
				return []string{"--listen-ip", "127.0.0.1", "--listen-port", "4750", "--unsafe-allow-private-ranges"}
			}},
	} {
		*proxy.into = p.behindProxy(s, proxy.name, proxy.at, proxy.program, proxy.config, proxy.args)
	}
	return p
}

// missing is a peer that has no way to be here, or that nobody has set up.
func missing(name, program string) *client {
	c := &client{name: name, skipped: "it is not in build/peers: scripts/bench-peers says why"}
	if _, err := os.Stat(program); err == nil {
		c.skipped = "it is there, and the benchmark has no set-up for it yet"
	}
	return c
}

// behindProxy starts an HTTP proxy and a client that asks it for tunnels.
func (p *peers) behindProxy(s *settings, name, at, program, config string, args func(string) []string) *client {
	path, err := exec.LookPath(program)
	if err != nil {
		path, err = exec.LookPath("/usr/sbin/" + program)
	}
	if err != nil {
		return &client{name: name, skipped: "not on this machine: scripts/bench-peers installs what can be had"}
	}
	file := filepath.Join(s.dir, name+".conf")
	if err := os.WriteFile(file, []byte(config), 0o644); err != nil {
		return &client{name: name, skipped: err.Error()}
	}
	cmd := exec.Command(path, args(file)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return &client{name: name, skipped: err.Error()}
	}
	p.stop = append(p.stop, func() error { return errors.Join(cmd.Process.Kill(), cmd.Wait()) })
	if err := listens(at); err != nil {
		return &client{name: name, skipped: err.Error()}
	}
	return p.add(started(name, exec.Command(s.self, roleArgument, "client", server+"@tcp:"+at)))
}

// listens waits until somebody does.
func listens(at string) error {
	var err error
	for range 200 {
		var c net.Conn
		if c, err = net.Dial("tcp", at); err == nil {
			return c.Close()
		}
		<-time.After(50 * time.Millisecond)
	}
	return fmt.Errorf("it does not listen: %w", err)
}

// behindSlirp is a client in a network namespace of its own, which slirp4netns serves.
func (p *peers) behindSlirp(s *settings) *client {
	path, err := exec.LookPath("slirp4netns")
	if err != nil {
		return &client{name: "slirp4netns", skipped: err.Error()}
	}
	command := exec.Command(s.self, roleArgument, "client", server)
	c := p.add(startedIn("slirp4netns", command, syscall.CLONE_NEWNET))
	if c.skipped != "" {
		return c
	}
	r, ready, err := os.Pipe()
	if err != nil {
		c.skipped = err.Error()
		return c
	}
	defer r.Close()
	slirp := exec.Command(path, "--configure", "--mtu=65520", "--ready-fd=3", fmt.Sprint(command.Process.Pid), "tap0")
	slirp.ExtraFiles, slirp.SysProcAttr = []*os.File{ready}, &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	err = slirp.Start()
	_ = ready.Close()
	if err != nil {
		c.skipped = err.Error()
		return c
	}
	p.stop = append(p.stop, func() error { return errors.Join(slirp.Process.Kill(), slirp.Wait()) })
	if _, err := bufio.NewReader(r).ReadByte(); err != nil {
		c.skipped = "slirp4netns did not get ready: " + err.Error()
	}
	return c
}

// lenient has a peer that breaks off skipped, with the reason, and the rest go on.
func lenient(c *contender) *contender {
	once := again(c).turn
	c.turn = func() (float64, error) {
		v, err := once()
		if err != nil {
			c.skipped = "it broke off: " + strings.ReplaceAll(err.Error(), "\n", "; ")
		}
		return v, nil
	}
	return c
}

// throughSocket measures our two ways over a Unix socket, every intent durable first, beside
// those of others: all take turns.
func throughSocket(s *settings, w ways) (rows []Row, err error) {
	socket, stop, err := boundaryAt(filepath.Join(s.dir, "tunnel"), filepath.Join(s.bin, "skep-box"))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	p := others(s, w, socket)
	defer func() { err = errors.Join(err, p.close()) }()
	size := 256 // MiB
	if s.quick {
		size = 64
	}
	for _, m := range []struct {
		op, measure, unit string
		n                 int
		more              bool // is better
	}{
		{"up", "throughput up, one flow", "Gbit/s", size, true}, {"down", "throughput down, one flow", "Gbit/s", size, true},
		{"ups", "throughput up, 64 flows", "Gbit/s", size, true}, {"downs", "throughput down, 64 flows", "Gbit/s", size, true},
		{"kept", "request on a kept connection, p50", "us", 1000, false}, {"fresh", "fresh flow with one request, p50", "ms", 50, false},
		{"flows", "new flows a second, 64 at a time", "/s", 256, true},
	} {
		found, err := p.compare(s, m.op, m.measure, m.unit, m.n, m.more)
		if err != nil {
			return rows, err
		}
		rows = append(rows, found...)
	}
	return append(rows, p.refusals(s)...), nil
}

// compare gives everybody turns with one operation: tunnel beside the proxies, tun beside
// what else gives a namespace a way out, both beside loopback.
func (p *peers) compare(s *settings, op, measure, unit string, n int, more bool) (rows []Row, err error) {
	var tails, theirs []float64
	of := func(c *client) *contender { return lenient(c.contender(op, n, nil)) }
	tunnel, tun := p.tunnel.contender(op, n, &tails), p.tun.contender(op, n, &theirs)
	direct := of(p.direct)
	proxies := []*contender{of(p.tinyproxy), of(p.squid), of(p.smokescreen)}
	ways := []*contender{of(p.pasta), of(p.slirp), of(p.tun2socks)}
	all := append(append([]*contender{tunnel, tun, direct}, proxies...), ways...)
	if err := alternate(s.rounds(20), all...); err != nil {
		return nil, fmt.Errorf("%s: %w", measure, err)
	}
	goal, met := "", (func(float64) bool)(nil)
	if goal = "<= 1"; more {
		goal = ">= 1"
	}
	for _, c := range append([]*contender{direct}, proxies...) {
		rows = append(rows, against("tunnel: "+measure, unit, tunnel, c, "", nil))
	}
	for _, c := range append([]*contender{direct}, ways...) {
		row := against("tun: "+measure, unit, tun, c, "", met)
		if c.name == "tun2socks" {
			if met = atMost(1); more {
				met = atLeast(1)
			}
			row = against("tun: "+measure, unit, tun, c, goal, met)
		}
		rows = append(rows, row)
	}
	if op == "fresh" {
		for _, t := range []struct {
			name string
			p99  []float64
		}{{"tunnel", tails}, {"tun", theirs}} {
			row := alone(t.name+": fresh flow with one request, p99", "ms", traffic.Quantile(t.p99, 0.5), "<= 5 ms", atMost(5))
			row.Turns = len(t.p99)
			rows = append(rows, row)
		}
	}
	return rows, nil
}

// refusals is how many a second our two ways give.
func (p *peers) refusals(s *settings) (rows []Row) {
	for _, c := range []*client{p.tunnel, p.tun} {
		x := lenient(c.contender("refused", 2000, nil))
		if err := alternate(s.rounds(20), x); err != nil {
			x.skipped = err.Error()
		}
		row := alone(c.name+": refusals a second", "/s", x.median(), "", nil)
		row.Turns, row.Skipped = len(x.figures), x.skipped
		rows = append(rows, row)
	}
	return rows
}
