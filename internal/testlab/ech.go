package testlab

import (
	"crypto/ecdh"
	"crypto/rand"
	"encoding/binary"
	"fmt"
)

// ECHFor is a list of configurations by which a TLS client hides the name that it means
// behind another one, of a server that nobody has the key of (RFC 9849, section 4).
func ECHFor(shown string) ([]byte, error) {
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	u16 := binary.BigEndian.AppendUint16
	public := key.PublicKey().Bytes()
	body := u16([]byte{7}, 0x20) // id, X25519 with SHA-256
	body = append(u16(body, uint16(len(public))), public...)
	body = append(body, 0, 4, 0, 1, 0, 1, 0) // HKDF-SHA256 and AES-128-GCM; no maximal length
	body = append(append(body, byte(len(shown))), shown...)
	body = u16(body, 0) // no extensions
	one := append(u16(u16(nil, 0xfe0d), uint16(len(body))), body...)
	return append(u16(nil, uint16(len(one))), one...), nil
}
