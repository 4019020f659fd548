package main

import (
	"fmt"
	"maps"
	"slices"

	"github.com/elastic/go-seccomp-bpf/arch"
	"golang.org/x/net/bpf"
)

// Values of linux/seccomp.h and asm-generic/errno*.h.
const (
	retAllow  = 0x7fff0000
	retErrno  = 0x00050000
	retNotify = 0x7fc00000
	retKill   = 0x80000000

	ePERM         = 1
	eNOSYS        = 38
	eAFNOSUPPORT  = 97
	ePROTONOSUPP  = 93
	auditArchX64  = 0xc000003e
	x32SyscallBit = 0x40000000

	offNr   = 0
	offArch = 4
)

// offArg is the offset of the low half of argument n in struct seccomp_data. The
// kernel reads the arguments compared here as 32 bits, so the high half must not
// take part: a comparison of all 64 bits is passed by setting a bit up there.
func offArg(n uint32) uint32 { return 16 + 8*n }

// filter is an allow-list: what no rule names is ENOSYS, so that a library
// falls back as on an older kernel.
type filter struct {
	conditional []conditional
	actions     map[string]uint32
}

// conditional is a call whose arguments decide; body ends in a return on every path.
type conditional struct {
	name string
	body []bpf.Instruction
}

func (f filter) assemble() ([]bpf.RawInstruction, error) {
	numbers := arch.X86_64.SyscallNames
	program := []bpf.Instruction{
		bpf.LoadAbsolute{Off: offArch, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: auditArchX64, SkipTrue: 1},
		bpf.RetConstant{Val: retKill},
		bpf.LoadAbsolute{Off: offNr, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpGreaterOrEqual, Val: x32SyscallBit, SkipFalse: 1},
		bpf.RetConstant{Val: retErrno | eNOSYS},
	}
	number := func(name string) (uint32, error) {
		if n, ok := newerCalls()[name]; ok {
			return n, nil
		}
		n, ok := numbers[name]
		if !ok {
			return 0, fmt.Errorf("unknown system call %q", name)
		}
		return uint32(n), nil
	}
	leaves := map[uint32][]bpf.Instruction{}
	for name, action := range f.actions {
		n, err := number(name)
		if err != nil {
			return nil, err
		}
		leaves[n] = []bpf.Instruction{bpf.RetConstant{Val: action}}
	}
	for _, c := range f.conditional {
		n, err := number(c.name)
		if err != nil {
			return nil, err
		}
		leaves[n] = c.body
	}
	return bpf.Assemble(append(program, search(spans(leaves))...))
}

// span is a run of calls, from first to the next span, that end alike.
type span struct {
	first uint32
	body  []bpf.Instruction
}

// spans covers every number: what has no leaf is ENOSYS.
func spans(leaves map[uint32][]bpf.Instruction) []span {
	unknown := []bpf.Instruction{bpf.RetConstant{Val: retErrno | eNOSYS}}
	all := []span{{0, unknown}}
	if body, ok := leaves[0]; ok {
		all[0].body = body
	}
	numbers := slices.Sorted(maps.Keys(leaves))
	for n := uint32(1); n <= numbers[len(numbers)-1]+1; n++ {
		body, ok := leaves[n]
		if !ok {
			body = unknown
		}
		if !slices.Equal(body, all[len(all)-1].body) {
			all = append(all, span{n, body})
		}
	}
	return all
}

// search finds a number's span in about eight steps. The kernel runs the filter
// once for each call that there is when it is installed, in front of each agent.
func search(all []span) []bpf.Instruction {
	if len(all) == 1 {
		return all[0].body
	}
	middle := len(all) / 2
	below, above := search(all[:middle]), search(all[middle:])
	program := []bpf.Instruction{bpf.JumpIf{Cond: bpf.JumpGreaterOrEqual, Val: all[middle].first, SkipTrue: uint8(len(below))}}
	if len(below) > 255 { // a conditional jump reaches no further
		program = []bpf.Instruction{
			bpf.JumpIf{Cond: bpf.JumpGreaterOrEqual, Val: all[middle].first, SkipFalse: 1},
			bpf.Jump{Skip: uint32(len(below))},
		}
	}
	return append(append(program, below...), above...)
}

// newerCalls are numbers that the library's table does not have yet.
func newerCalls() map[string]uint32 {
	return map[string]uint32{
		"futex_wake": 454, "futex_wait": 455, "futex_requeue": 456, "mseal": 462,
		"setxattrat": 463, "getxattrat": 464, "listxattrat": 465, "removexattrat": 466,
		"file_getattr": 468, "cachestat": 451, "fchmodat2": 452, "map_shadow_stack": 453, "uretprobe": 335,
	}
}

// deniedIf returns errno if the low half of the argument has one of the bits.
func deniedIf(arg, bits, errno uint32) []bpf.Instruction {
	return []bpf.Instruction{
		bpf.LoadAbsolute{Off: offArg(arg), Size: 4},
		bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: bits, SkipFalse: 1},
		bpf.RetConstant{Val: retErrno | errno},
		bpf.RetConstant{Val: retAllow},
	}
}

// deniedOn returns errno if the low half of the argument is one of the values.
func deniedOn(arg, errno uint32, values ...uint32) []bpf.Instruction {
	body := []bpf.Instruction{bpf.LoadAbsolute{Off: offArg(arg), Size: 4}}
	for _, v := range values {
		body = append(body,
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: v, SkipFalse: 1},
			bpf.RetConstant{Val: retErrno | errno})
	}
	return append(body, bpf.RetConstant{Val: retAllow})
}

// onlyOn allows the values of the argument's low half, and no other.
func onlyOn(arg, errno uint32, values ...uint32) []bpf.Instruction {
	body := []bpf.Instruction{bpf.LoadAbsolute{Off: offArg(arg), Size: 4}}
	for _, v := range values {
		body = append(body,
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: v, SkipFalse: 1},
			bpf.RetConstant{Val: retAllow})
	}
	return append(body, bpf.RetConstant{Val: retErrno | errno})
}

// socketRule allows unix, IPv4 and IPv6 sockets of the stream, datagram and
// seqpacket types, and netlink with the route protocol alone (L11). Multipath TCP
// stays: it is under the same gate (B20).
func socketRule() []bpf.Instruction {
	const afUnix, afInet, afInet6, afNetlink, sockRaw, sockPacket, typeMask = 1, 2, 10, 16, 3, 10, 0xf
	return []bpf.Instruction{
		bpf.LoadAbsolute{Off: offArg(0), Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: afUnix, SkipFalse: 1},
		bpf.RetConstant{Val: retAllow},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: afNetlink, SkipTrue: 9},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: afInet, SkipTrue: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: afInet6, SkipTrue: 1},
		bpf.RetConstant{Val: retErrno | eAFNOSUPPORT},
		bpf.LoadAbsolute{Off: offArg(1), Size: 4},
		bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: typeMask},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: sockRaw, SkipTrue: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: sockPacket, SkipTrue: 1},
		bpf.RetConstant{Val: retAllow},
		bpf.RetConstant{Val: retErrno | ePERM},
		bpf.LoadAbsolute{Off: offArg(2), Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: 0, SkipFalse: 1},
		bpf.RetConstant{Val: retAllow},
		bpf.RetConstant{Val: retErrno | ePROTONOSUPP},
	}
}
