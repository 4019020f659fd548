package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// The explicit route of a guest as a boundary of its own: behind the socket that a case
// asks for stands an agent in a guest, which hands each connection to the endpoint that
// skep-init made for it, and behind that the boundary under test.
const (
	relayCommand = "relay" // relay SKEP-INIT BOX... run --socket S FLAG...
	agentCommand = "relay-agent"
)

// throughGuest reports whether a case of the socket is one of that route, too. Those of the
// guest's own group, and of the way in, which is no part of the relay, have tests of their
// own there.
func throughGuest(id string) bool {
	return !strings.HasPrefix(id, "BG-") && !strings.HasPrefix(id, "BI-")
}

// relayed is the command that makes one of a boundary's.
func relayed(init string, program []string) []string {
	return append([]string{"/proc/self/exe", relayCommand, init}, program...)
}

// roles is what this program is where it has started itself.
func roles(args []string) (code int, done bool) {
	switch {
	case len(args) > 2 && args[0] == relayCommand:
		return relay(args[1:]), true
	case len(args) == 2 && args[0] == agentCommand:
		return relayAgent(args[1]), true
	}
	return 0, false
}

// relay starts the boundary, then the guest, and ends with the boundary.
func relay(args []string) int {
	runtime.LockOSThread() // the children's death signal hangs on it
	init, program := args[0], slices.Clone(args[1:])
	at := slices.Index(program, "--socket") + 1
	if at == 0 || at == len(program) {
		fmt.Fprintln(os.Stderr, "relay: no --socket")
		return 2
	}
	outer := program[at]
	inner := filepath.Join(filepath.Dir(outer), "b")
	program[at] = inner
	box := exec.Command(program[0], program[1:]...)
	box.Stdout, box.Stderr = os.Stdout, os.Stderr
	box.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := box.Start(); err != nil {
		fmt.Fprintln(os.Stderr, "relay:", err)
		return 2
	}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT)
	go func() {
		for s := range signals {
			_ = box.Process.Signal(s)
		}
	}()
	ended := make(chan struct{})
	go func() { _ = box.Wait(); close(ended) }()
	if listens(inner, ended) {
		guest := exec.Command(init, "run", "--route", "explicit", "--create-namespaces", inner, "/proc/self/exe", agentCommand, outer)
		self, err := os.Executable()
		if err == nil {
			guest.Args[len(guest.Args)-3] = self
			guest.Stdout, guest.Stderr = os.Stdout, os.Stderr
			guest.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
			err = guest.Start()
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "relay:", err)
			_ = box.Process.Signal(syscall.SIGTERM)
		}
		<-ended
		if err == nil {
			_ = guest.Process.Signal(syscall.SIGTERM)
			_ = guest.Wait()
		}
		_ = os.Remove(outer)
	}
	<-ended
	return box.ProcessState.ExitCode()
}

// listens waits until a boundary listens, and says false if it ends before.
func listens(at string, ended <-chan struct{}) bool {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if c, err := net.Dial("unix", at); err == nil {
			_ = c.Close()
			return true
		}
		select {
		case <-ended:
			return false
		case <-tick.C:
		}
	}
}

// relayAgent is the agent in the guest.
func relayAgent(at string) int {
	l, err := net.Listen("unix", at)
	if err != nil {
		fmt.Fprintln(os.Stderr, "relay:", err)
		return 1
	}
	for {
		c, err := l.Accept()
		if err != nil {
			return 1
		}
		go func() {
			defer func() { _ = c.Close() }()
			up, err := net.Dial("tcp", strings.TrimPrefix(os.Getenv("HTTPS_PROXY"), "http://"))
			if err != nil {
				return
			}
			defer func() { _ = up.Close() }()
			both(c.(*net.UnixConn), up.(*net.TCPConn))
		}()
	}
}

// half is a stream whose directions end one by one.
type half interface {
	net.Conn
	CloseWrite() error
}

func both(a, b half) {
	var wait sync.WaitGroup
	one := func(to, from half) {
		_, err := io.Copy(to, from)
		if err = errors.Join(err, to.CloseWrite()); err != nil {
			_, _ = to.Close(), from.Close()
		}
	}
	wait.Go(func() { one(a, b) })
	wait.Go(func() { one(b, a) })
	wait.Wait()
}
