package serve

import (
	"encoding/binary"
	"fmt"

	"skep.dev/skep/internal/worker/proto"
)

// Record operations and flags of warden/warden.h.
const (
	recReadOnly = 1 << iota
	recDetached
	recOptional
	recNoExec
	recFile
	recWritable
	recDevices
	recOwn
)

func opNumbers() map[proto.Op]uint32 {
	return map[proto.Op]uint32{
		proto.OpDir: 1, proto.OpFile: 2, proto.OpSymlink: 3, proto.OpBind: 4, proto.OpOverlay: 5,
		proto.OpTmpfs: 6, proto.OpHide: 7, proto.OpSelf: 8, proto.OpCover: 9, opDevPTS: 10, opProc: 11, opDevice: 4,
	}
}

const (
	specHeader = 64
	specRecord = 40
)

// encodeSpec lays a build request out as the warden reads it: header, records,
// strings. own are limits that its processes hold: processors and memory, which the
// cell sees of itself, and the number of processes.
func encodeSpec(b *proto.Build, detached bool, own proto.Limits) ([]byte, error) {
	records := specHeader + specRecord*len(b.Steps)
	var strings []byte
	put := func(data []byte) uint32 {
		at := uint32(records + len(strings))
		strings = append(strings, data...)
		return at
	}
	text := func(s string) uint32 { return put(append([]byte(s), 0)) }
	vector := func(list []string) uint32 {
		var offsets []byte
		for _, s := range list {
			offsets = binary.NativeEndian.AppendUint32(offsets, text(s))
		}
		return put(offsets)
	}

	ops := opNumbers()
	var body []byte
	for i := range b.Steps {
		s := &b.Steps[i]
		data, size := uint32(records), len(s.Data)
		switch s.Op {
		case proto.OpFile:
			data = put(s.Data)
		case proto.OpSymlink, proto.OpCover:
			data = text(s.Target)
		}
		for _, v := range []uint32{ops[s.Op], flags(s, detached), text(s.Path), s.Mode, uint32(s.FD), data, uint32(size), 0} {
			body = binary.NativeEndian.AppendUint32(body, v)
		}
		body = binary.NativeEndian.AppendUint64(body, s.Size)
	}

	var head []byte
	u32 := func(values ...uint32) {
		for _, v := range values {
			head = binary.NativeEndian.AppendUint32(head, v)
		}
	}
	u32(wardenMagic, wardenVersion, uint32(len(b.Steps)), uint32(records))
	u32(vector(b.Argv), uint32(len(b.Argv)), vector(b.Env), uint32(len(b.Env)))
	u32(text(b.Dir), text(b.Hostname))
	var size proto.Size
	if b.Terminal != nil {
		size = *b.Terminal
		u32(1)
	} else {
		u32(0)
	}
	head = binary.NativeEndian.AppendUint16(head, size.Rows)
	head = binary.NativeEndian.AppendUint16(head, size.Columns)
	u32(uint32(min(own.Pids, 1<<31)), uint32((own.MilliCPU+999)/1000))
	head = binary.NativeEndian.AppendUint64(head, uint64(own.Memory))
	if len(head) != specHeader {
		return nil, fmt.Errorf("the spec's header is %d bytes, not %d", len(head), specHeader)
	}
	// The last byte must be zero, so that no string can run over the end.
	return append(append(append(head, body...), strings...), 0), nil
}

func flags(s *proto.Step, detached bool) uint32 {
	var f uint32
	for _, b := range []struct {
		is  bool
		bit uint32
	}{
		{s.ReadOnly, recReadOnly},
		{detached && (s.Op == proto.OpBind || s.Op == proto.OpOverlay || s.Op == opDevice), recDetached},
		{s.Optional, recOptional},
		{s.NoExec, recNoExec},
		{s.File, recFile},
		{s.Writable, recWritable},
		{s.Op == opDevice || s.Op == opDevPTS, recDevices},
		{s.Own, recOwn},
	} {
		if b.is {
			f |= b.bit
		}
	}
	return f
}
