// Package trust has the programs of a cell with secrets believe the cell's own authority
// (boundary.md, B125).
//
// Its laws:
//   - The host's own trust is not touched: what a cell sees is generated for it, read-only.
//   - What stands in a cell is the host's certificates and the cell's, nothing less: other
//     destinations are believed as before.
//   - A variable that the profile passes or sets is left as it is.
package trust

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	pkcs12 "software.sslmate.com/src/go-pkcs12"

	"skep.dev/skep/internal/cell"
	"skep.dev/skep/internal/config"
	"skep.dev/skep/internal/sys"
)

// The generated files.
const (
	bundle = "/.skep/trust/ca-bundle.pem" // the host's certificates and the cell's
	alone  = "/.skep/trust/ca.pem"        // the cell's
	java   = "/.skep/trust/cacerts.p12"   // all of them, for Java
)

// bundles are where the programs of distributions look.
func bundles() []string {
	return []string{
		"/etc/ssl/certs/ca-certificates.crt",                // Debian, Alpine
		"/etc/pki/tls/certs/ca-bundle.crt",                  // Fedora
		"/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", // likewise
		"/etc/ssl/ca-bundle.pem",                            // SUSE
		"/var/lib/ca-certificates/ca-bundle.pem",            // likewise
		"/etc/ssl/cert.pem",                                 // Alpine
	}
}

// stores are where Java's may be.
func stores() []string {
	return []string{
		"/etc/ssl/certs/java/cacerts", "/etc/pki/java/cacerts", "/etc/pki/ca-trust/extracted/java/cacerts", "/var/lib/ca-certificates/java-cacerts",
		"/usr/lib/jvm/*/lib/security/cacerts", "/usr/lib/jvm/*/jre/lib/security/cacerts", "/usr/local/*/lib/security/cacerts", "/opt/*/lib/security/cacerts",
		"/opt/*/*/lib/security/cacerts",
	}
}

// variables name a file for programs that look nowhere else; those that add to what a
// program has get the cell's certificate alone.
func variables() map[string]string {
	out := map[string]string{"NODE_EXTRA_CA_CERTS": alone, "DENO_CERT": alone}
	for _, name := range []string{
		"SSL_CERT_FILE", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "GIT_SSL_CAINFO", "AWS_CA_BUNDLE", "PIP_CERT", "CARGO_HTTP_CAINFO",
		"NIX_SSL_CERT_FILE", "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
	} {
		out[name] = bundle
	}
	return out
}

// Roots are whom this host trusts, and the operator's own beside them, PEM.
func Roots(more []byte) []byte {
	return slices.Concat(config.SystemRoots(), []byte("\n"), more)
}

// Furnish has a cell that is about to be built trust root, one certificate, beside roots.
func Furnish(s *cell.Spec, roots, root []byte) error {
	all := slices.Concat(roots, []byte("\n"), root)
	s.Files = append(s.Files, cell.File{Path: bundle, Content: all}, cell.File{Path: alone, Content: root})
	for _, at := range bundles() {
		show(s, at, bundle)
	}
	covered := false
	for _, pattern := range stores() {
		found, _ := filepath.Glob(pattern) // of a valid pattern
		for _, at := range found {
			covered = show(s, at, java) || covered
		}
	}
	store, err := storeOf(all)
	if err != nil {
		return err
	}
	s.Files = append(s.Files, cell.File{Path: java, Content: store})
	more := variables()
	if !covered { // a Java that comes with the agent is told
		more["JAVA_TOOL_OPTIONS"] = "-Djavax.net.ssl.trustStore=" + java + " -Djavax.net.ssl.trustStoreType=PKCS12"
	}
	for name, value := range more {
		if !slices.ContainsFunc(s.Env, func(pair string) bool { return strings.HasPrefix(pair, name+"=") }) {
			s.Env = append(s.Env, name+"="+value)
		}
	}
	slices.Sort(s.Env)
	return nil
}

// show has a path that is there on the host lead to a generated file, if the cell may see
// it: over what a grant shows, or by a link where no grant is.
func show(s *cell.Spec, at, file string) bool {
	real, err := filepath.EvalSymlinks(at)
	if err != nil {
		return false
	}
	g := holder(s, real)
	if g == nil {
		if holder(s, at) != nil { // a link that leads out of what is granted
			return false
		}
		if !slices.ContainsFunc(s.Links, func(l cell.Link) bool { return l.Path == at }) {
			s.Links = append(s.Links, cell.Link{Path: at, Target: file})
		}
		return true
	}
	for _, n := range s.Narrow {
		if n.Kind == cell.Hidden && within(n.Path, real) {
			return false
		}
	}
	if !isFile(g, real) {
		return false
	}
	if !slices.ContainsFunc(s.Covers, func(c cell.Cover) bool { return c.Path == real }) {
		s.Covers = append(s.Covers, cell.Cover{Path: real, File: file})
	}
	return true
}

// holder is the innermost grant that shows a path.
func holder(s *cell.Spec, at string) (in *cell.Grant) {
	for i := range s.Grants {
		if g := &s.Grants[i]; within(g.Path, at) && (in == nil || len(g.Path) > len(in.Path)) {
			in = g
		}
	}
	return in
}

// isFile tells whether a plain file stands there in what was granted.
func isFile(g *cell.Grant, at string) bool {
	f := g.Object
	if at != g.Path {
		opened, err := sys.OpenChild(g.Object, strings.TrimPrefix(at, g.Path+"/"), sys.PathOnly)
		if err != nil {
			return false
		}
		defer func() { _ = opened.Close() }()
		f = opened
	}
	st, err := sys.StatFile(f)
	return err == nil && st.Mode&sys.ModeTypeMask == sys.ModeRegular
}

func within(dir, at string) bool { return at == dir || strings.HasPrefix(at, dir+"/") }

// storeOf is certificates as Java has them: without a password, since nobody is asked.
func storeOf(all []byte) ([]byte, error) {
	var certs []*x509.Certificate
	for {
		var b *pem.Block
		if b, all = pem.Decode(all); b == nil {
			break
		}
		if c, err := x509.ParseCertificate(b.Bytes); err == nil && b.Type == "CERTIFICATE" {
			certs = append(certs, c)
		}
	}
	store, err := pkcs12.Passwordless.EncodeTrustStore(certs, "")
	if err != nil {
		return nil, fmt.Errorf("make the trust store of a cell: %w", err)
	}
	return store, nil
}
