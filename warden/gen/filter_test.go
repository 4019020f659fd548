package main

import (
	"encoding/binary"
	"testing"

	"github.com/elastic/go-seccomp-bpf/arch"
	"golang.org/x/net/bpf"
)

// judge runs a filter over one call. The virtual machine reads in network order,
// so the call is laid out in it; a value is what a load of 32 bits sees.
func judge(t *testing.T, f filter, archID uint32, nr uint32, args ...uint64) uint32 {
	t.Helper()
	raw, err := f.assemble()
	if err != nil {
		t.Fatal(err)
	}
	program := make([]bpf.Instruction, len(raw))
	for i, r := range raw {
		program[i] = r.Disassemble()
	}
	vm, err := bpf.NewVM(program)
	if err != nil {
		t.Fatal(err)
	}
	call := make([]byte, 64)
	binary.BigEndian.PutUint32(call[offNr:], nr)
	binary.BigEndian.PutUint32(call[offArch:], archID)
	for i, a := range args {
		binary.BigEndian.PutUint32(call[offArg(uint32(i)):], uint32(a))
		binary.BigEndian.PutUint32(call[offArg(uint32(i))+4:], uint32(a>>32))
	}
	verdict, err := vm.Run(call)
	if err != nil {
		t.Fatal(err)
	}
	return uint32(verdict)
}

func TestCellFilter(t *testing.T) {
	nr := func(name string) uint32 {
		n, ok := arch.X86_64.SyscallNames[name]
		if !ok {
			t.Fatalf("no number for %s", name)
		}
		return uint32(n)
	}
	const high = 1 << 32 // a bit that the kernel does not read, and a naive comparison does
	cases := []struct {
		name string
		args []uint64
		want uint32
	}{
		{"read", nil, retAllow},
		{"execve", nil, retAllow},
		{"socket", []uint64{1, 1, 0}, retAllow},
		{"socket", []uint64{2, 1 | 0x80000, 0}, retAllow},
		{"socket", []uint64{10, 2, 17}, retAllow},
		{"socket", []uint64{2, 1, 262}, retAllow}, // MPTCP, under the same gate
		{"socket", []uint64{2, 3, 1}, retErrno | ePERM},
		{"socket", []uint64{2 | high, 3 | high, 1}, retErrno | ePERM},
		{"socket", []uint64{16, 3, 0}, retAllow},
		{"socket", []uint64{16, 3, 12}, retErrno | ePROTONOSUPP},
		{"socket", []uint64{17, 3, 0}, retErrno | eAFNOSUPPORT},
		{"socket", []uint64{38, 5, 0}, retErrno | eAFNOSUPPORT},
		{"socket", []uint64{40 | high, 1, 0}, retErrno | eAFNOSUPPORT},
		{"socketpair", []uint64{1, 1, 0}, retAllow},
		{"socketpair", []uint64{30, 1, 0}, retErrno | eAFNOSUPPORT},
		{"clone", []uint64{0x01200011}, retAllow},
		{"clone", []uint64{0x10000000 | 17}, retErrno | ePERM},
		{"clone", []uint64{0x40000000 | 17}, retErrno | ePERM},
		{"unshare", []uint64{0x400}, retAllow},
		{"unshare", []uint64{0x80}, retErrno | ePERM},
		{"unshare", []uint64{0x10000000 | high}, retErrno | ePERM},
		{"ioctl", []uint64{0, 0x5401}, retAllow},
		{"ioctl", []uint64{0, 0x5412}, retErrno | ePERM},
		{"ioctl", []uint64{0, 0x5412 | high}, retErrno | ePERM},
		{"ioctl", []uint64{0, 0x541c | 7<<32}, retErrno | ePERM},
		{"fcntl", []uint64{3, 2, 1}, retAllow},
		{"fcntl", []uint64{3, 1024, 0}, retErrno | ePERM}, // F_SETLEASE
		{"fcntl", []uint64{3, 1024 | high, 0}, retErrno | ePERM},
		{"fcntl", []uint64{3, 1040, 0}, retErrno | ePERM}, // F_SETDELEG
		{"fcntl", []uint64{3, 1025, 0}, retAllow},         // F_GETLEASE
		{"personality", []uint64{0xffffffff}, retAllow},
		{"personality", []uint64{8}, retErrno | ePERM},
		{"mount", nil, retErrno | ePERM},
		{"setns", nil, retErrno | ePERM},
		{"bpf", nil, retErrno | ePERM},
		{"keyctl", nil, retErrno | eNOSYS},
		{"io_uring_setup", nil, retErrno | eNOSYS},
		{"clone3", nil, retErrno | eNOSYS},
		{"fsopen", nil, retErrno | eNOSYS},
		{"move_mount", nil, retErrno | eNOSYS},
		{"sysinfo", nil, retAllow},
	}
	for _, c := range cases {
		if got := judge(t, cellFilter(false), auditArchX64, nr(c.name), c.args...); got != c.want {
			t.Errorf("%s%#x: %#x, want %#x", c.name, c.args, got, c.want)
		}
	}
	if got := judge(t, cellFilter(true), auditArchX64, nr("sysinfo")); got != retNotify {
		t.Errorf("sized sysinfo: %#x, want a notification", got)
	}
	const i386 = 0x40000003
	if got := judge(t, cellFilter(false), i386, nr("read")); got != retKill {
		t.Errorf("another architecture: %#x, want kill", got)
	}
	if got := judge(t, cellFilter(false), auditArchX64, x32SyscallBit|nr("read")); got != retErrno|eNOSYS {
		t.Errorf("x32: %#x, want ENOSYS", got)
	}
	if got := judge(t, cellFilter(false), auditArchX64, 100_000); got != retErrno|eNOSYS {
		t.Errorf("a call of a newer kernel: %#x, want ENOSYS", got)
	}
}

// Every table is made of this source alone.
func TestTablesAreDeterministic(t *testing.T) {
	first, err := ruleset()
	if err != nil {
		t.Fatal(err)
	}
	second, err := ruleset()
	if err != nil {
		t.Fatal(err)
	}
	if string(first.bytes) != string(second.bytes) {
		t.Error("the rules differ between two runs")
	}
}
