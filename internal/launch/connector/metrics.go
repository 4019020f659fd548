package connector

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"time"

	"skep.dev/skep/internal/daemon/connector"
	"skep.dev/skep/internal/daemon/connector/metrics"
)

// serveMetrics serves the counts where --metrics says (B200): a socket with mode 0600, or
// an address of loopback, which no cell without a network reaches.
func (o options) serveMetrics(counts *metrics.Counts) (stop func(), err error) {
	at := o.metrics
	if !strings.HasPrefix(at, "/") {
		address, err := netip.ParseAddrPort(at)
		if err != nil {
			return nil, fmt.Errorf("read --metrics, a path from the root or an address with a port: %w", err)
		}
		if at, err = connector.OnTCP(address); err != nil {
			return nil, fmt.Errorf("read --metrics: %w", err)
		}
	}
	socket, err := connector.Listen(at, connector.Ours)
	if err != nil {
		return nil, fmt.Errorf("serve --metrics: %w", err)
	}
	l, err := net.FileListener(socket)
	_ = socket.Close()
	if err != nil {
		return nil, fmt.Errorf("serve --metrics: %w", err)
	}
	s := &http.Server{Handler: counts, ReadHeaderTimeout: 5 * time.Second, WriteTimeout: 5 * time.Second}
	go func() { _ = s.Serve(l) }()
	return func() {
		_ = s.Close()
		if strings.HasPrefix(at, "/") {
			_ = os.Remove(at)
		}
	}, nil
}
