package boxlink

import (
	"encoding/binary"
	"net"
	"runtime"
	"testing"
	"time"

	"skep.dev/skep/internal/h2"
	"skep.dev/skep/internal/sys"
)

// flood is what a box that was taken over sends: calls that it takes back at once.
func flood(path string, content string, calls uint32) []byte {
	frame := func(out []byte, kind, flags byte, stream uint32, payload []byte) []byte {
		n := len(payload)
		out = append(out, byte(n>>16), byte(n>>8), byte(n), kind, flags)
		return append(binary.BigEndian.AppendUint32(out, stream), payload...)
	}
	var head []byte
	for _, field := range []h2.Field{{Name: ":method", Value: "POST"}, {Name: ":path", Value: path}, {Name: "content-type", Value: content}} {
		head = append(append(head, 0x10, byte(len(field.Name))), field.Name...)
		head = append(append(head, byte(len(field.Value))), field.Value...)
	}
	out := []byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
	for i := range calls {
		out = frame(out, 1, 4|1, 2*i+1, head)             // HEADERS, the end of both
		out = frame(out, 3, 0, 2*i+1, []byte{0, 0, 0, 8}) // RST_STREAM
	}
	return out
}

// TestBoxThatTakesBackItsCallsIsCutOff is the attack: a box that begins calls, takes
// them back and reads nothing leaves a bounded number of goroutines and bytes.
func TestBoxThatTakesBackItsCallsIsCutOff(t *testing.T) {
	for path, content := range map[string]string{"Watch": streaming, "Lease": unary, "Record": unary} {
		t.Run(path, func(t *testing.T) {
			raw := flood(serviceName+path, content, 30_000)
			ours, theirs, err := sys.StreamPair()
			if err != nil {
				t.Fatal(err)
			}
			defer theirs.Close()
			box, err := net.FileConn(theirs)
			if err != nil {
				t.Fatal(err)
			}
			defer box.Close()
			goroutines, before := runtime.NumGoroutine(), held()
			line, lineEnd, err := sys.SeqpacketPair()
			if err != nil {
				t.Fatal(err)
			}
			defer lineEnd.Close()
			l, err := Serve(ours, line)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			_ = box.SetWriteDeadline(time.Now().Add(5 * time.Second))
			if n, err := box.Write(raw); err == nil {
				t.Errorf("all %d bytes were taken", n)
			}
			if n := runtime.NumGoroutine() - goroutines; n > 64 {
				t.Errorf("%d goroutines are left", n)
			}
			if n := held() - before; n > 4<<20 {
				t.Errorf("%d bytes are held", n)
			}
			select {
			case <-l.Done():
			case <-soon(t).Done():
				t.Error("the box is not cut off")
			}
		})
	}
}

// held is what the heap and the stacks hold, in bytes.
func held() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}
