// Package issuer reaches the identity provider that vouches for agents (boundary.md,
// B212), for a program of the operator; nothing of a cell goes this way.
package issuer

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"time"
)

// ErrCA says that a file of certificates holds none.
var ErrCA = errors.New("no certificate in PEM")

const wholeTime = 10 * time.Second

// Client speaks TLS 1.2 or later, follows no redirect, and believes the host's roots, or
// with ca the PEM certificates in it alone.
func Client(ca []byte) (*http.Client, error) {
	var roots *x509.CertPool
	if ca != nil {
		roots = x509.NewCertPool()
		if !roots.AppendCertsFromPEM(ca) {
			return nil, ErrCA
		}
	}
	return &http.Client{
		Timeout:       wholeTime,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, TLSHandshakeTimeout: wholeTime,
			MaxIdleConns: 1, IdleConnTimeout: time.Minute, MaxResponseHeaderBytes: 64 << 10,
		},
	}, nil
}
