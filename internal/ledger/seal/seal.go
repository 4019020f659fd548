// Package seal signs segments of the ledger and checks their signatures.
//
// Its laws:
//   - A seal has two signatures, Ed25519 and ML-DSA-65, over the same bytes,
//     and is good only if both verify (D5): a break of one scheme is not enough.
//   - The signed bytes are "skep-seal-v1", NUL, and the canonical JSON of the
//     seal's entry with both signatures empty. Nothing of a seal is unsigned.
//   - The private halves are generated on first start, lie in one file of mode
//     0600, and never leave this package (D7). A key file that others can read
//     is refused, and a lost one is not replaced behind a ledger that it signed.
package seal

import (
	"bytes"
	"crypto/ed25519"
	"crypto/mldsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"

	"skep.dev/skep/internal/ledger/entry"
	"skep.dev/skep/internal/ledger/jcs"
	"skep.dev/skep/internal/ledger/kind"
)

// ErrKey means that a seal names another key; ErrSignature that it is not what
// the key signed; ErrForm that it is not a seal.
var (
	ErrKey       = errors.New("signed by another key")
	ErrSignature = errors.New("signature does not verify")
	ErrForm      = errors.New("not a seal")
)

const domain = "skep-seal-v1\x00"

// Public is the public half: what an auditor needs.
type Public struct {
	ed ed25519.PublicKey
	ml *mldsa.PublicKey
	id string
}

// keyText is the form of both key files: hex, seeds in the private one.
type keyText struct {
	Ed25519 string `json:"ed25519"`
	MLDSA65 string `json:"mldsa65"`
	V       string `json:"v"`
}

// ID is the SHA-256 of the key's text in lower-case hex; a seal names its key
// by it.
func (p *Public) ID() string { return p.id }

// Text is the key as `skep ledger key` prints it: canonical JSON and a newline.
func (p *Public) Text() string {
	t, err := jcs.Append(nil, keyText{hex.EncodeToString(p.ed), hex.EncodeToString(p.ml.Bytes()), "1"})
	if err != nil {
		panic("encode a public key: " + err.Error()) // hex is always text
	}
	return string(t) + "\n"
}

// ParsePublic reads the form of [Public.Text].
func ParsePublic(text []byte) (*Public, error) {
	ed, ml, err := parseKeyText(text)
	if err != nil || len(ed) != ed25519.PublicKeySize {
		return nil, fmt.Errorf("read a public ledger key: %w", errors.Join(err, lengthError(ed, ed25519.PublicKeySize)))
	}
	mlKey, err := mldsa.NewPublicKey(mldsa.MLDSA65(), ml)
	if err != nil {
		return nil, fmt.Errorf("read a public ledger key: %w", err)
	}
	return newPublic(ed, mlKey), nil
}

func newPublic(ed ed25519.PublicKey, ml *mldsa.PublicKey) *Public {
	p := &Public{ed: ed, ml: ml}
	sum := sha256.Sum256([]byte(p.Text()[:len(p.Text())-1]))
	p.id = hex.EncodeToString(sum[:])
	return p
}

func parseKeyText(text []byte) (ed, ml []byte, err error) {
	var t keyText
	if err := jcs.Decode(bytes.TrimSuffix(text, []byte("\n")), &t); err != nil {
		return nil, nil, err
	}
	if t.V != "1" {
		return nil, nil, fmt.Errorf("key version %q is not known", t.V)
	}
	if ed, err = hex.DecodeString(t.Ed25519); err != nil {
		return nil, nil, err
	}
	ml, err = hex.DecodeString(t.MLDSA65)
	return ed, ml, err
}

func lengthError(b []byte, want int) error {
	if len(b) == want {
		return nil
	}
	return fmt.Errorf("%d bytes where %d should be", len(b), want)
}

// Verify reads a seal's entry and checks both signatures. raw is the entry's
// canonical JSON as it was stored.
func (p *Public) Verify(raw []byte) (entry.Entry, kind.Seal, error) {
	e, s, unsigned, err := open(raw)
	if err != nil {
		return e, s, err
	}
	if s.Key != p.id {
		return e, s, fmt.Errorf("seal %d: %w: %.16s, not %.16s", e.Seq, ErrKey, s.Key, p.id)
	}
	ed, err1 := base64.StdEncoding.Strict().DecodeString(s.Signatures.Ed25519)
	ml, err2 := base64.StdEncoding.Strict().DecodeString(s.Signatures.MLDSA65)
	if err := errors.Join(err1, err2); err != nil {
		return e, s, fmt.Errorf("seal %d: %w: %w", e.Seq, ErrSignature, err)
	}
	if !ed25519.Verify(p.ed, unsigned, ed) {
		return e, s, fmt.Errorf("seal %d: Ed25519 %w", e.Seq, ErrSignature)
	}
	if err := mldsa.Verify(p.ml, unsigned, ml, nil); err != nil {
		return e, s, fmt.Errorf("seal %d: ML-DSA-65 %w: %w", e.Seq, ErrSignature, err)
	}
	return e, s, nil
}

// Parse reads a seal's entry without its signatures.
func Parse(raw []byte) (entry.Entry, kind.Seal, error) {
	e, s, _, err := open(raw)
	return e, s, err
}

func open(raw []byte) (entry.Entry, kind.Seal, []byte, error) {
	var s kind.Seal
	e, err := entry.Parse(raw)
	if err != nil {
		return e, s, nil, err
	}
	if e.Kind != kind.KindSeal {
		return e, s, nil, fmt.Errorf("%w: a %s among the seals", ErrForm, e.Kind)
	}
	if err := jcs.Decode(e.Body, &s); err != nil {
		return e, s, nil, fmt.Errorf("%w: %w", ErrForm, err)
	}
	unsigned, err := message(e, s)
	return e, s, unsigned, err
}

// message is what is signed: the domain and the entry without signatures.
func message(e entry.Entry, s kind.Seal) ([]byte, error) {
	s.Signatures = kind.Signatures{}
	var err error
	if e.Body, err = jcs.Append(nil, s); err != nil {
		return nil, err
	}
	return entry.Append([]byte(domain), &e)
}

// Signer holds the private half.
type Signer struct {
	ed  ed25519.PrivateKey
	ml  *mldsa.PrivateKey
	pub *Public
}

// Public returns the public half.
func (k *Signer) Public() *Public { return k.pub }

// Sign returns the canonical JSON of a seal's entry; e gives all but its kind
// and body, s all but key and signatures.
func (k *Signer) Sign(e entry.Entry, s kind.Seal) ([]byte, error) {
	e.Kind, s.Key = kind.KindSeal, k.pub.id
	unsigned, err := message(e, s)
	if err != nil {
		return nil, fmt.Errorf("encode a seal: %w", err)
	}
	ml, err := k.ml.Sign(nil, unsigned, &mldsa.Options{})
	if err != nil {
		return nil, fmt.Errorf("sign a seal: %w", err)
	}
	s.Signatures.Ed25519 = base64.StdEncoding.EncodeToString(ed25519.Sign(k.ed, unsigned))
	s.Signatures.MLDSA65 = base64.StdEncoding.EncodeToString(ml)
	if e.Body, err = jcs.Append(nil, s); err != nil {
		return nil, fmt.Errorf("encode a seal: %w", err)
	}
	return entry.Append(nil, &e)
}
