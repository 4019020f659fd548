// Skep-model is the gateway to models: it holds the providers' keys and answers
// cells on connections that skepd hands over. It is started by skepd with
// descriptor 3, the control socket, and nothing else: no flags, no file.
package main

import (
	"crypto/rand"
	"fmt"
	"log/slog"
	"net/http"
	"os"

	"skep.dev/skep/internal/dest/model/provider"
	"skep.dev/skep/internal/model/service"
	"skep.dev/skep/internal/sys"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "skep-model:", err)
		os.Exit(1)
	}
}

func run() error {
	sock, err := sys.Inherited(3, "control")
	if err != nil {
		return fmt.Errorf("%w (skep-model is started by skepd)", err)
	}
	if err := service.Confine(); err != nil {
		return err
	}
	transport := func(baseURL string) (http.RoundTripper, error) { return provider.NewTransport(baseURL) }
	// Random, so that no two runs on one ledger name their calls alike.
	return service.Run(sock, rand.Text()[:8], transport, slog.New(slog.NewTextHandler(os.Stderr, nil)))
}
