package box

import (
	"encoding/binary"
	"syscall"
	"testing"
)

// What a warden of an earlier build says of the counter is understood, and nothing that
// is cut off is taken for a number or an address.
func TestAnswersOfTheWarden(t *testing.T) {
	head := func(op uint32) []byte { return binary.LittleEndian.AppendUint32(nil, op) }
	before := append(head(opCounter), make([]byte, answerSize-4)...)
	before[16] = 7
	if a := answerOf(before); a.value != 7 || a.errno != 0 {
		t.Errorf("%+v", a)
	}
	packets := []byte{12, 0, counterPackets, 0, 0, 0, 0, 0, 0, 0, 1, 2}
	data := append([]byte{byte(4 + len(packets)), 0, objectData, 0x80}, packets...)
	whole := append(append(append(head(opCounter), make([]byte, answerSize-4)...), make([]byte, netlinkHead+nfgenHead)...), data...)
	if a := answerOf(whole); a.value != 258 || a.errno != 0 {
		t.Errorf("%+v", a)
	}
	for n := answerSize + 1; n < len(whole); n++ {
		if a := answerOf(whole[:n]); a.value != 0 || a.errno == 0 {
			t.Errorf("of %d bytes: %+v", n, a)
		}
	}
	for op, want := range map[uint32]syscall.Errno{opOrigin: syscall.EIO, opForget: syscall.EIO, opAdd: 0} {
		if a := answerOf(append(head(op), make([]byte, answerSize-4)...)); a.errno != want || originOf(a.kernel).IsValid() {
			t.Errorf("%d: %+v", op, a)
		}
	}
}
