package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"connectrpc.com/connect"

	connectorv1 "skep.dev/skep/api/connector/v1"
	"skep.dev/skep/api/connector/v1/connectorv1connect"
)

// idleBoxes is how many boundaries of tunnels stand idle.
func idleBoxes() []int { return []int{1, 64, 1000} }

// measureBoxes reads what idle boxes of tunnels hold in proportional shares (PSS).
func measureBoxes(s *settings) ([]Row, error) {
	var rows []Row
	for _, n := range idleBoxes() {
		all, took, err := boxesAtRest(s, n)
		if err != nil {
			return rows, fmt.Errorf("%d idle boxes: %w", n, err)
		}
		row := alone(fmt.Sprintf("memory of an idle box, of %d", n), "MB", all/float64(n), "", nil)
		if n == 1000 {
			row = alone("memory of 1000 idle boxes in all", "MB", all, "<= 3000 MB", atMost(3000))
		}
		row.Turns, row.Note = 1, fmt.Sprintf("PSS; attached in %.2f s", took.Seconds())
		rows = append(rows, row)
	}
	return rows, nil
}

// boxesAtRest attaches n agents to a connector of their own, and sums up their boxes.
func boxesAtRest(s *settings, n int) (megabytes float64, took time.Duration, err error) {
	dir := filepath.Join(s.dir, fmt.Sprint("boxes-", n))
	if err := os.Mkdir(dir, 0o700); err != nil {
		return 0, 0, err
	}
	control := filepath.Join(dir, "control", "s")
	serving := exec.Command(filepath.Join(s.bin, "skep-box"), "serve", "--control", control, "--dir", filepath.Join(dir, "agents"), "--records", filepath.Join(dir, "records"), "--insecure-unverified-bundle")
	serving.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := serving.Start(); err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, serving.Process.Signal(syscall.SIGTERM), serving.Wait()) }()
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", control)
	}
	call := connectorv1connect.NewConnectorServiceClient(&http.Client{Transport: &http.Transport{DialContext: dial}}, "http://connector")
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	for _, err := call.Status(ctx, connect.NewRequest(&connectorv1.StatusRequest{})); err != nil; _, err = call.Status(ctx, connect.NewRequest(&connectorv1.StatusRequest{})) {
		if ctx.Err() != nil {
			return 0, 0, err
		}
		<-time.After(10 * time.Millisecond)
	}
	begin := time.Now()
	for at := 0; at < n; at += 256 {
		batch := &connectorv1.AttachBatchRequest{}
		for i := at; i < min(at+256, n); i++ {
			text := fmt.Sprintf("version: v1\nagent: {id: a%d.example}\negress: {allow: [{name: ok%d.example, ports: [443]}]}\n", i, i)
			batch.Bundles = append(batch.Bundles, &connectorv1.AttachRequest{Bundle: []byte(text)})
		}
		if _, err := call.AttachBatch(ctx, connect.NewRequest(batch)); err != nil {
			return 0, 0, err
		}
	}
	took = time.Since(begin)
	children, err := childrenOf(serving.Process.Pid)
	if err != nil || len(children) != n {
		return 0, 0, fmt.Errorf("%d boxes run: %w", len(children), err)
	}
	for _, pid := range children {
		share, err := pss(pid)
		if err != nil {
			return 0, 0, err
		}
		megabytes += share
	}
	return megabytes, took, nil
}

// childrenOf are the processes that a process has started, by whichever of its threads.
func childrenOf(pid int) (all []int, err error) {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		for word := range strings.FieldsSeq(string(text)) {
			child, err := strconv.Atoi(word)
			if err != nil {
				return nil, err
			}
			all = append(all, child)
		}
	}
	return all, nil
}
