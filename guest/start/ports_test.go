package start

import (
	"io"
	"net"
	"testing"
)

// TestPortIsUsedAgain: a port that the agent's kernel takes again, after a server has ended
// its flow first, works at once: some thousand flows bring every port round.
func TestPortIsUsedAgain(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, "bye")
			_ = c.Close()
		}
	}()
	b := serveBoundary(t, map[string]string{"ok.test:7080": ln.Addr().String()})
	expect(t, probe(t, b, nil, "one port=ok.test:7080"), map[string]string{"one port=ok.test:7080": "at once"})
}
