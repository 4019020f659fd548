// Package provider dials the providers of the model gateway, and nothing else does.
//
// Its laws:
//   - A transport dials one authority, fixed when it is made.
//   - It follows no proxy of the environment, asks for no compression (which
//     would hold events back), and has no total bound.
package provider

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"
)

// dialTimeout bounds one attempt to connect.
const dialTimeout = 15 * time.Second

// NewTransport returns a transport to the host and port of baseURL alone, over
// HTTP/2 where the provider has it.
func NewTransport(baseURL string) (*http.Transport, error) {
	u, err := url.Parse(baseURL)
	if err != nil || u.Hostname() == "" {
		return nil, fmt.Errorf("transport to model provider: the URL has no host")
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"https": "443", "http": "80"}[u.Scheme]
	}
	only := net.JoinHostPort(u.Hostname(), port)
	dialer := &net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}
	return &http.Transport{
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			if addr != only {
				return nil, fmt.Errorf("dial model provider: %s is not the one that is configured", addr)
			}
			return dialer.DialContext(ctx, network, addr)
		},
		TLSClientConfig:     &tls.Config{MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout: dialTimeout,
		ForceAttemptHTTP2:   true,
		DisableCompression:  true,
		MaxIdleConnsPerHost: 16,
		IdleConnTimeout:     90 * time.Second,
	}, nil
}
