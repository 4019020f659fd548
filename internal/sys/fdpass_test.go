package sys

import (
	"bytes"
	"errors"
	"io"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

func passPair(t *testing.T) (a, b *os.File) {
	t.Helper()
	a, b, err := SeqpacketPair()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close(); b.Close() })
	return a, b
}

func TestPassedDescriptorWorksAndIsCloseOnExec(t *testing.T) {
	a, b := passPair(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := SendFDs(a, []byte("pipe"), w); err != nil {
		t.Fatal(err)
	}
	w.Close()
	buf := make([]byte, 16)
	n, files, err := RecvFDs(b, buf, 1)
	if err != nil || string(buf[:n]) != "pipe" || len(files) != 1 {
		t.Fatalf("got %q, %d files, %v", buf[:n], len(files), err)
	}
	fd, _ := rawFD(files[0])
	if flags, _ := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); flags&unix.FD_CLOEXEC == 0 {
		t.Error("a received descriptor would survive exec")
	}
	io.WriteString(files[0], "through")
	files[0].Close()
	if got, _ := io.ReadAll(r); string(got) != "through" {
		t.Errorf("read %q", got)
	}
}

// A peer that ends with our message unread has said what it said.
func TestLastWordOfAPeerThatDidNotRead(t *testing.T) {
	a, b := passPair(t)
	if err := errors.Join(SendFDs(a, []byte("unread")), SendFDs(b, []byte("last word")), b.Close()); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 16)
	for _, want := range []string{"last word", ""} {
		if n, _, err := RecvFDs(a, buf, 0); err != nil || string(buf[:n]) != want {
			t.Errorf("got %q, %v, want %q", buf[:n], err, want)
		}
	}
}

// Nothing that a peer sends may stay open in a receiver that did not ask for it.
func TestRefusedMessageLeavesNoDescriptor(t *testing.T) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	for _, c := range []struct {
		name     string
		msg      []byte
		send     int
		buf, max int
	}{
		{"too many descriptors", []byte("x"), 3, 8, 2},
		{"none wanted", []byte("x"), 1, 8, 0},
		{"message too long", bytes.Repeat([]byte("x"), 64), 2, 8, 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, b := passPair(t)
			files := make([]*os.File, c.send)
			for i := range files {
				files[i] = null
			}
			before := countOpenFDs(t)
			if err := SendFDs(a, c.msg, files...); err != nil {
				t.Fatal(err)
			}
			if _, _, err := RecvFDs(b, make([]byte, c.buf), c.max); !errors.Is(err, ErrTruncated) {
				t.Fatalf("got %v, want ErrTruncated", err)
			}
			if after := countOpenFDs(t); after != before {
				t.Errorf("%d descriptors open, %d before", after, before)
			}
		})
	}
}

func TestReceiveEndsWithPeerAndWithClose(t *testing.T) {
	a, b := passPair(t)
	a.Close()
	if n, files, err := RecvFDs(b, make([]byte, 8), 1); n != 0 || files != nil || err != nil {
		t.Errorf("after peer closed: %d, %v, %v", n, files, err)
	}
	_, d := passPair(t)
	done := make(chan error, 1)
	go func() {
		_, _, err := RecvFDs(d, make([]byte, 8), 1)
		done <- err
	}()
	d.Close()
	if err := <-done; err == nil {
		t.Error("a closed socket received a message")
	}
}

func TestSendRefusesEmptyAndTooMany(t *testing.T) {
	a, _ := passPair(t)
	if err := SendFDs(a, nil); err == nil {
		t.Error("an empty message was sent")
	}
	many := make([]*os.File, MaxPassedFDs+1)
	if err := SendFDs(a, []byte("x"), many...); err == nil {
		t.Error("more than MaxPassedFDs were sent")
	}
}

func countOpenFDs(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}
