package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"skep.dev/skep/tests/bench/rig"
)

// measureMemory reads what one idle cell's own programs hold: box, warden and PID
// 1, in proportional shares (PSS), so that what many share counts once.
func measureMemory(s *settings) ([]Row, error) {
	work, err := workDir(s, "memory")
	if err != nil {
		return nil, err
	}
	var rows []Row
	for _, c := range []struct {
		cells int
		limit float64
	}{{1, 6}, {20, 3}} {
		row, err := idleMemory(s, c.cells, c.limit, work)
		if err != nil {
			return rows, err
		}
		rows = append(rows, row)
	}
	return rows, nil
}

func idleMemory(s *settings, cells int, limit float64, work string) (Row, error) {
	r, err := rig.Start(s.bin, filepath.Join(s.dir, fmt.Sprint("memory-rig-", cells)))
	if err != nil {
		return Row{}, err
	}
	defer func() { _ = r.Close() }()
	idle, err := idleCells(r, rig.Request{Argv: []string{program}, Write: []string{work}}, cells)
	defer endAll(idle)
	if err != nil {
		return Row{}, err
	}
	var boxes, wardens, inits float64
	for _, c := range idle {
		warden, init := c.Programs()
		for _, p := range []struct {
			pid int
			sum *float64
		}{{c.Box, &boxes}, {warden, &wardens}, {init, &inits}} {
			share, err := pss(p.pid)
			if err != nil {
				return Row{}, err
			}
			*p.sum += share / float64(cells)
		}
	}
	all := boxes + wardens + inits
	row := alone(fmt.Sprintf("memory of an idle cell, of %d", cells), "MB", all, fmt.Sprintf("<= %g MB", limit), atMost(limit))
	row.Note = fmt.Sprintf("PSS: box %.2f, warden %.2f, PID 1 %.3f", boxes, wardens, inits)
	row.Turns = cells
	return row, nil
}

// pss is a process's proportional share of memory, in MB (proc_pid_smaps(5)).
func pss(pid int) (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return 0, fmt.Errorf("read the memory of process %d: %w", pid, err)
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) == 3 && fields[0] == "Pss:" {
			kB, err := strconv.ParseFloat(fields[1], 64)
			return kB / 1024, err
		}
	}
	return 0, fmt.Errorf("the memory of process %d has no PSS", pid)
}
