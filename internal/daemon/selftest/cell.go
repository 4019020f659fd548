package selftest

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"skep.dev/skep/internal/cell"
	"skep.dev/skep/internal/cell/prove"
	"skep.dev/skep/internal/daemon/doctor"
	"skep.dev/skep/internal/daemon/furniture"
	"skep.dev/skep/internal/daemon/outputlog"
	"skep.dev/skep/internal/sys"
)

// pids bounds the proving program, which is one process of some threads.
const pids = 64

// shmSize is of the cell's /dev/shm, in bytes.
const shmSize = 1 << 20

// Spec is a cell with nothing but the proving program, made of files in dir, which
// is not there yet. hostPid is a process that it must not see. What is missing is
// its box and its control socket. The caller closes what is in it, also with an error.
func Spec(dir, program, id string, hostPid int) (s *cell.Spec, err error) {
	s = &cell.Spec{
		ID: id, Hostname: "selftest", Argv: []string{prove.Program, "prove", strconv.Itoa(hostPid)}, Dir: "/",
		Env: furniture.Environment(), HomePath: furniture.Home, ShmSize: shmSize, Limits: cell.Limits{Pids: pids},
		Narrow: []cell.Narrow{{Path: prove.Dir, Kind: cell.Hidden}},
	}
	if s.Home, err = furniture.MakeDir(filepath.Join(dir, "home")); err != nil {
		return s, err
	}
	if s.Tmp, err = furniture.MakeDir(filepath.Join(dir, "tmp")); err != nil {
		return s, err
	}
	if s.Log, err = os.OpenFile(filepath.Join(dir, "log"), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600); err != nil {
		return s, fmt.Errorf("make the log of the self-test: %w", err)
	}
	object, err := executable(program, filepath.Join(dir, "program"))
	if err != nil {
		return s, err
	}
	s.Grants = []cell.Grant{{Path: prove.Program, Object: object}}
	return s, nil
}

// executable opens a program that an agent may execute: the file itself or, where it
// is closed to others as an installed worker is, a copy.
func executable(program, copied string) (*os.File, error) {
	const byOthers = 0o005
	info, err := os.Stat(program)
	if err != nil {
		return nil, fmt.Errorf("find the proving program: %w", err)
	}
	if info.Mode()&byOthers == byOthers {
		return sys.OpenPath(program)
	}
	raw, err := os.ReadFile(program)
	if err != nil {
		return nil, fmt.Errorf("copy the proving program: %w", err)
	}
	if err := os.WriteFile(copied, raw, 0o755); err != nil {
		return nil, fmt.Errorf("copy the proving program: %w", err)
	}
	return sys.OpenPath(copied)
}

// Said is what the proving program wrote into the log of its cell.
func Said(log *os.File) (string, error) {
	var said strings.Builder
	_, err := outputlog.Read(log, 0, func(data []byte, _ uint64) error {
		said.Write(data)
		return nil
	})
	return said.String(), err
}

// Findings are the lines of `skep doctor` for a proof, or for why there is none.
func Findings(p Proof, err error) []doctor.Finding {
	if err != nil {
		return []doctor.Finding{{
			Name: "self-test", Status: doctor.Missing, Detail: err.Error(),
			Fix: "this kernel or another security module answers otherwise: report it with the line above",
		}}
	}
	out := []doctor.Finding{{
		Name: "self-test", Status: doctor.OK, Detail: "proved " + p.At.Format(time.RFC3339) + " on Linux " + p.Kernel,
	}}
	for _, w := range prove.Walls() {
		out = append(out, doctor.Finding{Name: "wall: " + w.Name, Status: doctor.OK, Detail: w.Did + ": " + w.Want})
	}
	return out
}
