package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// boundaryAt starts a boundary that allows the server, and waits until it listens.
func boundaryAt(dir, program string) (socket string, stop func() error, err error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", nil, err
	}
	host, port, err := splitPort(server)
	if err != nil {
		return "", nil, err
	}
	bundle := filepath.Join(dir, "bundle.yaml")
	text := fmt.Sprintf("version: v1\nagent: {id: bench.example}\negress: {allow: [{ip: %s, ports: [%d]}]}\n", host, port)
	if err := os.WriteFile(bundle, []byte(text), 0o600); err != nil {
		return "", nil, err
	}
	// The server's address is this namespace's own, which the floor keeps closed.
	ceiling := filepath.Join(dir, "ceiling.yaml")
	if err := os.WriteFile(ceiling, []byte("open: [{cidr: "+host+"/32}]\n"), 0o600); err != nil {
		return "", nil, err
	}
	socket = filepath.Join(dir, "s")
	c := exec.Command(program, "run", "--socket", socket, "--bundle", bundle, "--ceiling", ceiling, "--insecure-unverified-bundle", "--records", filepath.Join(dir, "records"))
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	said, err := c.StderrPipe()
	if err != nil {
		return "", nil, err
	}
	if err := c.Start(); err != nil {
		return "", nil, err
	}
	stop = func() error { return errors.Join(c.Process.Signal(syscall.SIGTERM), c.Wait()) }
	late := time.AfterFunc(10*time.Second, func() { _ = c.Process.Kill() })
	defer late.Stop()
	var heard strings.Builder
	for lines := bufio.NewScanner(said); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "listening at ") {
			go func() { _, _ = io.Copy(io.Discard, said) }()
			return socket, stop, nil
		}
		heard.WriteString(lines.Text() + "\n")
	}
	return "", nil, errors.Join(fmt.Errorf("the boundary did not start: %s", heard.String()), c.Wait())
}
