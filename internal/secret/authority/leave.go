package authority

import (
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
)

const (
	certBlock = "CERTIFICATE"
	keyBlock  = "PRIVATE KEY"
)

var errLeft = errors.New("go on with an authority: not what one left")

// Leave is all that Inherit needs, the key of the intermediate too: whoever was given it
// overwrites it.
func (a *Authority) Leave() ([]byte, error) {
	key, err := x509.MarshalPKCS8PrivateKey(a.key)
	if err != nil {
		return nil, fmt.Errorf("leave an authority: %w", err)
	}
	defer clear(key)
	out := make([]byte, 0, 8<<10) // at once, so that no copy is left behind
	for _, b := range []pem.Block{{Type: certBlock, Bytes: a.root}, {Type: certBlock, Bytes: a.cert.Raw}, {Type: keyBlock, Bytes: key}} {
		text := pem.EncodeToMemory(&b)
		out = append(out, text...)
		clear(text)
	}
	return out, nil
}

// Inherit goes on with the authority that another box left, for the same names: the cell
// trusts it already.
func Inherit(hosts []string, left []byte) (*Authority, error) {
	a := &Authority{hosts: slices.Clone(hosts), leaves: map[string]leaf{}}
	var certs [][]byte
	for len(left) > 0 {
		b, rest := pem.Decode(left)
		if b == nil {
			return nil, errLeft
		}
		left = rest
		switch b.Type {
		case certBlock:
			certs = append(certs, b.Bytes)
		case keyBlock:
			key, err := x509.ParsePKCS8PrivateKey(b.Bytes)
			clear(b.Bytes)
			if err != nil {
				return nil, errLeft
			}
			a.key, _ = key.(*ecdsa.PrivateKey)
		}
	}
	if len(certs) != 2 || a.key == nil {
		return nil, errLeft
	}
	a.root = certs[0]
	var err error
	if a.cert, err = x509.ParseCertificate(certs[1]); err != nil {
		return nil, errLeft
	}
	if !slices.Equal(a.cert.PermittedDNSDomains, a.hosts) || !a.key.PublicKey.Equal(a.cert.PublicKey) {
		return nil, errLeft
	}
	return a, nil
}
