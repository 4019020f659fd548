// Package authority signs for the names to which a cell's secrets are bound, and for no
// other (boundary.md, B124).
//
// Its laws:
//   - The cell trusts a root. Its key has signed one intermediate certificate, and
//     nobody has it afterwards.
//   - The intermediate has the bound names and no address in critical constraints, so
//     that whoever had its key could sign for no other site. They are not in the root,
//     where some clients do not look.
//   - Keys are in memory only. One way leads out of it, to the box that takes the place of
//     the one that made them (Leave).
package authority

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"slices"
	"sync"
	"time"
)

const (
	early = 48 * time.Hour           // a cell's clock may be behind
	long  = 365*24*time.Hour - early // with early at most a year
	late  = 24 * time.Hour           // a leaf is good for a clock that is so much ahead
	reuse = time.Hour                // and is shown for so long
)

// Authority is the one of a cell, for its bound names.
type Authority struct {
	hosts []string
	root  []byte // the certificate, DER
	cert  *x509.Certificate
	key   *ecdsa.PrivateKey // of cert, the intermediate

	mu     sync.Mutex
	leaves map[string]leaf
}

type leaf struct {
	*tls.Certificate
	made time.Time
}

// New makes one for exact names in their one form.
func New(hosts []string, now time.Time) (*Authority, error) {
	if len(hosts) == 0 {
		return nil, errors.New("make an authority: no name to sign for")
	}
	a := &Authority{hosts: slices.Clone(hosts), leaves: map[string]leaf{}}
	root := template("Skep cell root", now, long)
	root.IsCA, root.MaxPathLen, root.KeyUsage = true, 1, x509.KeyUsageCertSign
	middle := template("Skep cell", now, long)
	middle.IsCA, middle.MaxPathLenZero, middle.KeyUsage = true, true, x509.KeyUsageCertSign
	middle.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	middle.PermittedDNSDomainsCritical, middle.PermittedDNSDomains = true, a.hosts
	middle.ExcludedIPRanges = []*net.IPNet{
		{IP: net.IPv4zero.To4(), Mask: net.CIDRMask(0, 32)}, {IP: net.IPv6zero, Mask: net.CIDRMask(0, 128)},
	}
	err := a.sign(root, middle)
	if err != nil {
		return nil, fmt.Errorf("make an authority: %w", err)
	}
	return a, nil
}

// sign makes both certificates. The key of the root is in this function alone.
func (a *Authority) sign(root, middle *x509.Certificate) error {
	once, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	defer erase(once)
	if a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return err
	}
	if a.root, err = x509.CreateCertificate(rand.Reader, root, root, &once.PublicKey, once); err != nil {
		return err
	}
	signer, err := x509.ParseCertificate(a.root)
	if err != nil {
		return err
	}
	raw, err := x509.CreateCertificate(rand.Reader, middle, signer, &a.key.PublicKey, once)
	if err != nil {
		return err
	}
	a.cert, err = x509.ParseCertificate(raw)
	return err
}

// erase overwrites a private key, as far as the standard library keeps it in one place.
func erase(key *ecdsa.PrivateKey) {
	//lint:ignore SA1019 deprecated for arithmetic; there is no other way to overwrite it
	clear(key.D.Bits()) //nolint:staticcheck // the same, to the other reader
	*key = ecdsa.PrivateKey{}
}

func template(name string, now time.Time, long time.Duration) *x509.Certificate {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 126))
	if err != nil {
		panic(err) // the reader of crypto/rand cannot fail
	}
	return &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name}, BasicConstraintsValid: true,
		NotBefore: now.Add(-early), NotAfter: now.Add(long),
	}
}

// Root is what the cell is to trust: one certificate, PEM.
func (a *Authority) Root() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.root})
}

// Leaf is what to show for one bound name, with its chain but the root.
func (a *Authority) Leaf(host string, now time.Time) (*tls.Certificate, error) {
	if !slices.Contains(a.hosts, host) {
		return nil, fmt.Errorf("sign for %q: no secret is bound to it", host)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if l := a.leaves[host]; l.Certificate != nil && now.Sub(l.made).Abs() < reuse {
		return l.Certificate, nil
	}
	c, err := a.leaf(host, now)
	if err != nil {
		return nil, fmt.Errorf("sign for %q: %w", host, err)
	}
	a.leaves[host] = leaf{c, now}
	return c, nil
}

// leaf signs for any name: the constraints, not this function, keep it from being of use.
func (a *Authority) leaf(host string, now time.Time) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	t := template("", now, late+reuse)
	t.Subject, t.DNSNames = pkix.Name{}, []string{host}
	t.KeyUsage, t.ExtKeyUsage = x509.KeyUsageDigitalSignature, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	raw, err := x509.CreateCertificate(rand.Reader, t, a.cert, &key.PublicKey, a.key)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{raw, a.cert.Raw}, PrivateKey: key}, nil
}
