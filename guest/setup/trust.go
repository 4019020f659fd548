package setup

import (
	"errors"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// trustPaths are where systems keep the certificates that programs trust: Debian,
// Fedora, Alpine, SUSE (B125).
func trustPaths() []string {
	return []string{
		"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
		"/etc/ssl/cert.pem", "/etc/ssl/ca-bundle.pem", "/var/lib/ca-certificates/ca-bundle.pem",
	}
}

const trustVariables = "SSL_CERT_FILE CURL_CA_BUNDLE REQUESTS_CA_BUNDLE NODE_EXTRA_CA_CERTS GIT_SSL_CAINFO AWS_CA_BUNDLE PIP_CERT " +
	"CARGO_HTTP_CAINFO DENO_CERT NIX_SSL_CERT_FILE GRPC_DEFAULT_SSL_ROOTS_FILE_PATH"

// Trust mounts a bundle over each usual path that exists, and returns the variables that
// are unset yet. Without a bundle it does nothing.
func Trust(bundle string) ([]string, error) {
	if bundle == "" {
		return nil, nil
	}
	if _, err := os.Stat(bundle); err != nil {
		return nil, &Fault{"the CA bundle cannot be read", err}
	}
	for _, path := range trustPaths() {
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err := unix.Mount(bundle, path, "", unix.MS_BIND, ""); err != nil {
			return nil, &Fault{"the CA bundle could not be mounted over " + path + "; the LSM profile or missing SYS_ADMIN forbids mounts: use --create-namespaces, or mount it from outside", err}
		}
	}
	var unset []string
	for name := range strings.FieldsSeq(trustVariables) {
		if _, set := os.LookupEnv(name); !set {
			unset = append(unset, name+"="+bundle)
		}
	}
	return unset, nil
}
