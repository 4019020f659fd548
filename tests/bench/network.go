package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"skep.dev/skep/internal/sys/durable"
	"skep.dev/skep/tests/bench/rig"
	"skep.dev/skep/tests/bench/traffic"
)

// server is the address of the benchmark's server: a public one, in a network
// namespace that has no way out.
const server = "9.1.1.1:9000"

// measureNetwork runs this program again in a network namespace of its own.
func measureNetwork(s *settings) ([]Row, error) {
	if os.Getuid() != 0 {
		return nil, errors.New("a network namespace with a veth pair for pasta needs root here")
	}
	text, err := json.Marshal(map[string]any{"bin": s.bin, "self": s.self, "dir": s.dir, "quick": s.quick})
	if err != nil {
		return nil, err
	}
	inside := exec.Command(s.self, roleArgument, "network", string(text))
	inside.Stderr = os.Stderr
	inside.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	out, err := inside.Output()
	if err != nil {
		return nil, fmt.Errorf("measure the way out: %w", err)
	}
	var rows []Row
	return rows, json.Unmarshal(out, &rows)
}

// networkInside measures in the namespace and prints its rows.
func networkInside(text string) error {
	var given struct {
		Bin, Self, Dir string
		Quick          bool
	}
	if err := json.Unmarshal([]byte(text), &given); err != nil {
		return err
	}
	s := &settings{bin: given.Bin, self: given.Self, dir: given.Dir, quick: given.Quick}
	if err := makeNetwork(); err != nil {
		return err
	}
	serving := exec.Command(s.self, roleArgument, "server", server)
	serving.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := serving.StdoutPipe()
	if err != nil {
		return err
	}
	if err := serving.Start(); err != nil {
		return err
	}
	defer func() { _ = serving.Process.Kill(); _ = serving.Wait() }()
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		return fmt.Errorf("wait for the server: %w", err)
	}
	rows, err := compareWaysOut(s)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(rows)
}

// makeNetwork gives the namespace the server's address, and a veth pair whose
// route pasta copies. Nothing is behind it.
func makeNetwork() error {
	for _, line := range []string{
		"link set lo up", "addr add 9.1.1.1/32 dev lo", "link add v0 type veth peer name v1",
		"addr add 10.9.0.2/24 dev v0", "link set v0 up", "link set v1 up", "route add default via 10.9.0.1 dev v0",
	} {
		if out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %w: %s", line, err, out)
		}
	}
	return nil
}

// ways are the three clients: on the namespace's own loopback, behind pasta, in a cell.
type ways struct {
	direct, pasta, cell *client
}

func compareWaysOut(s *settings) ([]Row, error) {
	r, err := rig.Start(s.bin, filepath.Join(s.dir, "network-rig"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Close() }()
	cell, running, err := inCell(r, s, server)
	if err != nil {
		return nil, err
	}
	defer func() { _ = cell.close() }()
	w := ways{cell: cell}
	w.direct = started("direct", exec.Command(s.self, roleArgument, "client", server))
	// Pasta would leave root's id, and then not be allowed to open the tun device.
	w.pasta = started("pasta", exec.Command("pasta", "--config-net", "--quiet", "--runas", "0", "--", s.self, roleArgument, "client", server))
	for _, c := range []*client{w.direct, w.pasta} {
		if c.close != nil {
			defer func() { _ = c.close() }()
		}
	}
	var rows []Row
	for _, measure := range []func(*settings, ways) ([]Row, error){throughput, keptRequests, newFlows, freshFlows, refusals} {
		begin := time.Now()
		found, err := measure(s, w)
		fmt.Fprintf(os.Stderr, "bench: a part of the network took %s\n", time.Since(begin).Round(time.Second))
		if err != nil {
			found = append(found, Row{Measure: "way out", Skipped: err.Error()})
		}
		rows = append(rows, found...)
	}
	tunneled, err := throughSocket(s, w)
	if err != nil {
		tunneled = append(tunneled, Row{Measure: "tunnel over a Unix socket", Skipped: err.Error()})
	}
	rows = append(rows, tunneled...)
	if memory, err := pss(running.Box); err == nil {
		rows = append(rows, alone("memory of a box after its traffic", "MB", memory, "", nil))
	}
	return rows, nil
}

// turns compares one operation on the three ways.
func (w ways) turns(s *settings, op string, n int, tails *[]float64) (cell, direct, pasta *contender, err error) {
	cell, direct, pasta = w.cell.contender(op, n, tails), w.direct.contender(op, n, nil), again(w.pasta.contender(op, n, nil))
	return cell, direct, pasta, alternate(s.rounds(30), cell, direct, pasta)
}

// again gives a peer that breaks off a connection, as pasta does now and then on a
// loaded machine, its turn again. We get none.
func again(c *contender) *contender {
	once := c.turn
	c.turn = func() (v float64, err error) {
		for range 4 {
			if v, err = once(); err == nil {
				break
			}
		}
		return v, err
	}
	return c
}

// against makes the row of a comparison with a peer that may be missing.
func against(measure, unit string, ours, theirs *contender, goal string, met func(float64) bool) Row {
	r := beside(measure, unit, ours.median(), theirs.name, theirs.median(), goal, met)
	r.Turns, r.Skipped = len(ours.figures), theirs.skipped
	return r
}

func throughput(s *settings, w ways) ([]Row, error) {
	size := 256 // MiB
	if s.quick {
		size = 64
	}
	var rows []Row
	for _, way := range []string{"up", "down"} {
		cell, direct, pasta, err := w.turns(s, way, size, nil)
		if err != nil {
			return rows, err
		}
		more := atLeast(1)
		if way == "up" {
			more = nil
		}
		goal := map[string]string{"down": ">= 1"}[way]
		rows = append(rows, against("throughput "+way+", one flow", "Gbit/s", cell, direct, ">= 0.55", atLeast(0.55)),
			against("throughput "+way+", one flow", "Gbit/s", cell, pasta, goal, more))
	}
	return rows, nil
}

func keptRequests(s *settings, w ways) ([]Row, error) {
	cell, direct, pasta, err := w.turns(s, "kept", 2000, nil)
	return []Row{
		against("request on a kept connection, p50", "us", cell, pasta, "<= 1.1", atMost(1.1)),
		against("request on a kept connection, p50", "us", cell, direct, "", nil),
	}, err
}

func newFlows(s *settings, w ways) ([]Row, error) {
	cell, direct, pasta, err := w.turns(s, "flows", 512, nil)
	return []Row{
		against("new flows a second, 64 at a time", "/s", cell, pasta, ">= 0.7", atLeast(0.7)),
		against("new flows a second, 64 at a time", "/s", cell, direct, "", nil),
	}, err
}

// freshFlows compares with what cannot be saved: the connection itself, and one
// sync of the record.
func freshFlows(s *settings, w ways) ([]Row, error) {
	f, err := os.Create(filepath.Join(s.dir, "sync"))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	disk := &contender{name: "fdatasync", turn: func() (float64, error) { return syncs(f, 100) }}
	var tails []float64
	cell, direct := w.cell.contender("fresh", 100, &tails), w.direct.contender("fresh", 100, nil)
	if err := alternate(s.rounds(30), cell, direct, disk); err != nil {
		return nil, err
	}
	floor := direct.median() + disk.median()
	row := beside("fresh flow with one request, p50", "ms", cell.median(), "direct + fdatasync", floor, "<= theirs + 0.7 ms", nil)
	ok := cell.median() <= floor+0.7
	row.Met, row.Turns = &ok, len(cell.figures)
	row.Note = fmt.Sprintf("direct %.2f ms, fdatasync %.2f ms", direct.median(), disk.median())
	tail := alone("fresh flow with one request, p99", "ms", traffic.Quantile(tails, 0.5), "<= 5 ms", atMost(5))
	tail.Turns = len(cell.figures)
	return []Row{row, tail}, nil
}

// syncs is the median time of n appends of an entry's size, each with fdatasync.
func syncs(f *os.File, n int) (float64, error) {
	var took []float64
	line := make([]byte, 700)
	for range n {
		begin := time.Now()
		if _, err := f.Write(line); err != nil {
			return 0, err
		}
		if err := durable.Sync(f); err != nil {
			return 0, err
		}
		took = append(took, traffic.Milliseconds(time.Since(begin)))
	}
	return traffic.Quantile(took, 0.5), nil
}

func refusals(s *settings, w ways) ([]Row, error) {
	cell := w.cell.contender("refused", 20000, nil)
	direct := w.direct.contender("refused", 20000, nil)
	if err := alternate(s.rounds(30), cell, direct); err != nil {
		return nil, err
	}
	row := alone("refusals a second, one cell", "/s", cell.median(), ">= 50000", atLeast(50000))
	row.Turns = len(cell.figures)
	row.Note = fmt.Sprintf("a closed port of loopback: %.0f/s", direct.median())
	return []Row{row}, nil
}
