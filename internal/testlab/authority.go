package testlab

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// authority signs the lab's server certificates.
type authority struct {
	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string

	mu     sync.Mutex
	leaves map[string]*tls.Certificate
	serial int64
}

// CAFile is a PEM file with the certificate of the lab's authority.
func (l *Lab) CAFile() string { return l.authority().file }

// Pool holds the certificate of the lab's authority.
func (l *Lab) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(l.authority().cert)
	return pool
}

func (l *Lab) authority() *authority {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ca != nil {
		return l.ca
	}
	a := &authority{t: l.t, leaves: map[string]*tls.Certificate{}, file: filepath.Join(l.t.TempDir(), "lab-ca.pem")}
	template := a.template("testlab authority")
	template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		l.t.Fatal(err)
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		l.t.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(raw); err != nil {
		l.t.Fatal(err)
	}
	a.key = key
	if err := os.WriteFile(a.file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw}), 0o644); err != nil {
		l.t.Fatal(err)
	}
	l.ca = a
	return a
}

func (a *authority) template(name string) *x509.Certificate {
	a.serial++
	return &x509.Certificate{
		SerialNumber: big.NewInt(a.serial), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-48 * time.Hour), NotAfter: time.Now().Add(48 * time.Hour),
	}
}

// config presents a certificate for names, or for whatever name is asked for.
func (a *authority) config(names []string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{"http/1.1"},
		GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
			if len(names) > 0 {
				return a.leaf(names)
			}
			return a.leaf([]string{canonical(hello.ServerName)})
		},
	}
}

func (a *authority) leaf(names []string) (*tls.Certificate, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if c := a.leaves[names[0]]; c != nil {
		return c, nil
	}
	template := a.template(names[0])
	template.KeyUsage, template.ExtKeyUsage = x509.KeyUsageDigitalSignature, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	for _, n := range names {
		if n != "" {
			template.DNSNames = append(template.DNSNames, n)
		}
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, a.cert, &a.key.PublicKey, a.key)
	if err != nil {
		return nil, err
	}
	a.leaves[names[0]] = &tls.Certificate{Certificate: [][]byte{raw, a.cert.Raw}, PrivateKey: a.key}
	return a.leaves[names[0]], nil
}

func discard() *log.Logger { return log.New(io.Discard, "", 0) }
