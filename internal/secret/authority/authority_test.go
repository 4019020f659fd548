package authority

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func lab(t *testing.T) (*Authority, *x509.CertPool, string) {
	t.Helper()
	a, err := New([]string{"api.test", "git.test"}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(a.Root()) {
		t.Fatal("the root is no certificate")
	}
	file := filepath.Join(t.TempDir(), "root.pem")
	if err := os.WriteFile(file, a.Root(), 0o600); err != nil {
		t.Fatal(err)
	}
	return a, pool, file
}

// forged is what somebody with the intermediate's key could sign.
func forged(t *testing.T, a *Authority, host string) *tls.Certificate {
	t.Helper()
	c, err := a.leaf(host, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// The bound names are accepted now, by a clock that is behind and by one that is ahead
// (BS-13); no other name, although the same key has signed for it (BS-8).
func TestBS8GoBelievesTheBoundNamesAlone(t *testing.T) {
	a, pool, _ := lab(t)
	verify := func(c *tls.Certificate, host string, at time.Time) error {
		leaf, err := x509.ParseCertificate(c.Certificate[0])
		if err != nil {
			t.Fatal(err)
		}
		middle := x509.NewCertPool()
		middle.AddCert(a.cert)
		_, err = leaf.Verify(x509.VerifyOptions{DNSName: host, Roots: pool, Intermediates: middle, CurrentTime: at})
		return err
	}
	for _, host := range []string{"api.test", "git.test"} {
		c, err := a.Leaf(host, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		for _, off := range []time.Duration{0, -5 * time.Minute, -47 * time.Hour, 24 * time.Hour} {
			if err := verify(c, host, time.Now().Add(off)); err != nil {
				t.Errorf("%s, clock off by %s: %v", host, off, err)
			}
		}
		if verify(c, host, time.Now().Add(26*time.Hour)) == nil || verify(c, "other.test", time.Now()) == nil {
			t.Errorf("the leaf of %s lives too long or is for others", host)
		}
	}
	for _, host := range []string{"other.test", "test", "api.test.example", "xapi.test", "127.0.0.1"} {
		if err := verify(forged(t, a, host), host, time.Now()); err == nil {
			t.Errorf("%s is accepted", host)
		}
		if _, err := a.Leaf(host, time.Now()); err == nil {
			t.Errorf("%s is signed for", host)
		}
	}
	if _, err := New(nil, time.Now()); err == nil {
		t.Error("an authority for no name")
	}
}

// What the certificates say (B124).
func TestCertificates(t *testing.T) {
	a, _, _ := lab(t)
	block, rest := pem.Decode(a.Root())
	root, err := x509.ParseCertificate(block.Bytes)
	if err != nil || len(rest) > 0 {
		t.Fatal(err)
	}
	if err := root.CheckSignature(root.SignatureAlgorithm, root.RawTBSCertificate, root.Signature); err != nil || a.cert.CheckSignatureFrom(root) != nil {
		t.Error("not signed by the root", err)
	}
	if !a.cert.PermittedDNSDomainsCritical || strings.Join(a.cert.PermittedDNSDomains, " ") != "api.test git.test" || len(a.cert.ExcludedIPRanges) != 2 ||
		!a.cert.MaxPathLenZero || a.cert.MaxPathLen != 0 || len(root.PermittedDNSDomains) != 0 {
		t.Error("the intermediate is not constrained")
	}
	if a.key.PublicKey.Equal(root.PublicKey) {
		t.Error("the key of the root is kept")
	}
	for _, c := range []*x509.Certificate{root, a.cert} {
		if c.NotAfter.Sub(c.NotBefore) > 365*24*time.Hour || time.Since(c.NotBefore) < 47*time.Hour {
			t.Errorf("good from %s to %s", c.NotBefore, c.NotAfter)
		}
	}
	one, _ := a.Leaf("api.test", time.Now())
	two, _ := a.Leaf("api.test", time.Now().Add(time.Minute))
	three, _ := a.Leaf("api.test", time.Now().Add(2*time.Hour))
	if one != two || two == three {
		t.Error("a leaf is made each time, or once for all")
	}
}

func TestBS8OpenSSLBelievesTheBoundNamesAlone(t *testing.T) {
	tool, err := exec.LookPath("openssl")
	if err != nil {
		t.Skip("there is no openssl here")
	}
	a, _, root := lab(t)
	verify := func(c *tls.Certificate) string {
		var files []string
		for i, raw := range c.Certificate {
			files = append(files, filepath.Join(t.TempDir(), string(rune('a'+i))+".pem"))
			if err := os.WriteFile(files[i], pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw}), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		out, _ := exec.Command(tool, "verify", "-x509_strict", "-CAfile", root, "-untrusted", files[1], files[0]).CombinedOutput()
		return string(out)
	}
	if out := verify(forged(t, a, "api.test")); !strings.Contains(out, "OK") {
		t.Error(out)
	}
	if out := verify(forged(t, a, "other.test")); !strings.Contains(out, "permitted subtree violation") {
		t.Error(out)
	}
}

func TestBS8CurlBelievesTheBoundNamesAlone(t *testing.T) {
	tool, err := exec.LookPath("curl")
	if err != nil {
		t.Skip("there is no curl here")
	}
	a, _, root := lab(t)
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		MinVersion:     tls.VersionTLS12,
		GetCertificate: func(h *tls.ClientHelloInfo) (*tls.Certificate, error) { return a.leaf(h.ServerName, time.Now()) },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				buf := make([]byte, 4096)
				if n, _ := c.Read(buf); n > 0 {
					_, _ = c.Write([]byte("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello"))
				}
			}()
		}
	}()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	get := func(host string) string {
		out, _ := exec.Command(tool, "-sS", "--max-time", "20", "--noproxy", "*", "--cacert", root, "--resolve", host+":"+port+":127.0.0.1", "https://"+host+":"+port+"/").CombinedOutput()
		return string(out)
	}
	if out := get("api.test"); out != "hello" {
		t.Error(out)
	}
	if out := get("other.test"); strings.Contains(out, "hello") || !strings.Contains(out, "certificate") {
		t.Error("curl takes another name, or does not say why it does not:", out)
	}
}
