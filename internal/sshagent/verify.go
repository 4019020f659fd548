package sshagent

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/sha512"
	"errors"
	"fmt"
	"math/big"
)

var errSignature = errors.New("the signature is not the key's")

// verify tells whether a key in wire form (RFC 4253, 5656, 8332, 8709) made a signature
// over data. It knows what hosts of today have; RSA with SHA-1 is refused.
func verify(key, data, signature []byte) error {
	k, s := &reader{rest: key}, &reader{rest: signature}
	kind, algorithm, raw := string(k.string()), string(s.string()), s.string()
	if !s.done() || k.bad {
		return errForm
	}
	switch kind {
	case "ssh-ed25519":
		public := k.string()
		if !k.done() || len(public) != ed25519.PublicKeySize || algorithm != kind {
			return errForm
		}
		return yes(ed25519.Verify(public, data, raw))
	case "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521":
		if algorithm != kind {
			return errForm
		}
		return verifyECDSA(kind, k, data, raw)
	case "ssh-rsa":
		e, n := new(big.Int).SetBytes(k.string()), new(big.Int).SetBytes(k.string())
		if !k.done() || !e.IsInt64() || e.BitLen() > 31 || n.BitLen() < 2048 || n.BitLen() > 8192 {
			return errForm
		}
		public := &rsa.PublicKey{N: n, E: int(e.Int64())}
		switch algorithm {
		case "rsa-sha2-256":
			sum := sha256.Sum256(data)
			return rsa.VerifyPKCS1v15(public, crypto.SHA256, sum[:], raw)
		case "rsa-sha2-512":
			sum := sha512.Sum512(data)
			return rsa.VerifyPKCS1v15(public, crypto.SHA512, sum[:], raw)
		}
	}
	return fmt.Errorf("a host's key of kind %.40q with %.40q is not known", kind, algorithm)
}

func verifyECDSA(kind string, k *reader, data, raw []byte) error {
	name, point := string(k.string()), k.string()
	var curve elliptic.Curve
	var sum []byte
	switch kind {
	case "ecdsa-sha2-nistp256":
		h := sha256.Sum256(data)
		curve, sum = elliptic.P256(), h[:]
	case "ecdsa-sha2-nistp384":
		h := sha512.Sum384(data)
		curve, sum = elliptic.P384(), h[:]
	default:
		h := sha512.Sum512(data)
		curve, sum = elliptic.P521(), h[:]
	}
	if !k.done() || kind != "ecdsa-sha2-"+name {
		return errForm
	}
	public, err := ecdsa.ParseUncompressedPublicKey(curve, point)
	if err != nil {
		return fmt.Errorf("read a host's key: %w", err)
	}
	r := &reader{rest: raw}
	a, b := new(big.Int).SetBytes(r.string()), new(big.Int).SetBytes(r.string())
	if !r.done() {
		return errForm
	}
	return yes(ecdsa.Verify(public, sum, a, b))
}

func yes(good bool) error {
	if !good {
		return errSignature
	}
	return nil
}
