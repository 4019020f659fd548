package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/tests/bench/rig"
	"skep.dev/skep/tests/bench/traffic"
)

// client is a program that makes traffic, somewhere.
type client struct {
	name    string
	in      io.Writer
	out     *bufio.Reader
	stop    func() error // at once
	close   func() error
	skipped string
}

// do gives one order and takes its outcome.
func (c *client) do(op string, n int) (traffic.Outcome, error) {
	line, err := json.Marshal(traffic.Order{Op: op, N: n})
	if err != nil {
		return traffic.Outcome{}, err
	}
	if _, err := c.in.Write(append(line, '\n')); err != nil {
		return traffic.Outcome{}, err
	}
	// A turn has an end, whatever happens to its client.
	late := time.AfterFunc(time.Minute, func() { _ = c.stop() })
	answer, err := c.out.ReadBytes('\n')
	late.Stop()
	if err != nil {
		return traffic.Outcome{}, fmt.Errorf("the client has ended, or did not answer in a minute: %w", err)
	}
	var found traffic.Outcome
	if err := json.Unmarshal(answer, &found); err != nil {
		return traffic.Outcome{}, err
	}
	if found.Error != "" {
		return found, errors.New(found.Error)
	}
	return found, nil
}

// contender takes turns with an operation; each p99 is kept in tails.
func (c *client) contender(op string, n int, tails *[]float64) *contender {
	return &contender{name: c.name, skipped: c.skipped, turn: func() (float64, error) {
		found, err := c.do(op, n)
		if tails != nil {
			*tails = append(*tails, found.P99)
		}
		return found.Figure, err
	}}
}

// started is a client that command runs; without the program it is skipped.
func started(name string, command *exec.Cmd) *client { return startedIn(name, command, 0) }

// startedIn is started in new namespaces.
func startedIn(name string, command *exec.Cmd, namespaces uintptr) *client {
	c := &client{name: name}
	if command.Err != nil {
		c.skipped = command.Err.Error()
		return c
	}
	in, err := command.StdinPipe()
	if err == nil {
		var out io.ReadCloser
		if out, err = command.StdoutPipe(); err == nil {
			c.in, c.out = in, bufio.NewReader(out)
			command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Cloneflags: namespaces}
			err = command.Start()
		}
	}
	if err != nil {
		c.skipped = err.Error()
		return c
	}
	c.stop = command.Process.Kill
	c.close = func() error { return errors.Join(in.Close(), command.Wait()) }
	return c
}

// inCell is a client in a cell whose policy allows the server.
func inCell(r *rig.Rig, s *settings, server string) (*client, *rig.Cell, error) {
	host, port, err := splitPort(server)
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cell, err := r.Start(ctx, rig.Request{
		Argv: []string{s.self, roleArgument, "client", server}, Read: []string{filepath.Dir(s.self)}, Stdio: true,
		Rules: []*skepv1.BoxRule{{Id: "bench", Ip: host, Tcp: true, Ports: []*skepv1.BoxPorts{{First: port, Last: port}}}},
	})
	if err != nil {
		return nil, nil, err
	}
	f := &frames{conn: cell.Client}
	c := &client{name: "cell", in: f, out: bufio.NewReader(f)}
	c.stop = cell.Running.Kill
	c.close = func() error {
		_ = cell.Client.Close()
		_ = cell.Running.Kill()
		<-cell.Running.Done()
		return cell.End(context.Background())
	}
	return c, cell, nil
}

func splitPort(at string) (host string, port uint32, err error) {
	host, text, err := net.SplitHostPort(at)
	if err != nil {
		return "", 0, err
	}
	_, err = fmt.Sscan(text, &port)
	return host, port, err
}

// frames carries an agent's input and output (L18b): type, length, bytes.
type frames struct {
	conn net.Conn
	left []byte
}

const frameStdin, frameStdout = 0, 1

func (f *frames) Write(p []byte) (int, error) {
	head := binary.LittleEndian.AppendUint32([]byte{frameStdin}, uint32(len(p)))
	if _, err := f.conn.Write(append(head, p...)); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (f *frames) Read(p []byte) (int, error) {
	for len(f.left) == 0 {
		head := make([]byte, 5)
		if _, err := io.ReadFull(f.conn, head); err != nil {
			return 0, err
		}
		body := make([]byte, binary.LittleEndian.Uint32(head[1:]))
		if _, err := io.ReadFull(f.conn, body); err != nil {
			return 0, err
		}
		if head[0] == frameStdout {
			f.left = body
		} else {
			fmt.Fprintf(os.Stderr, "bench: the cell says: %s", body)
		}
	}
	n := copy(p, f.left)
	f.left = f.left[n:]
	return n, nil
}
