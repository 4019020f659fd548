package seal

import (
	"bytes"
	"encoding/base64"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"skep.dev/skep/internal/ledger/entry"
	"skep.dev/skep/internal/ledger/jcs"
	"skep.dev/skep/internal/ledger/kind"
)

func signed(t *testing.T, k *Signer) []byte {
	t.Helper()
	raw, err := k.Sign(entry.Entry{Seq: 3, Cell: "c1", Time: time.Unix(1, 2)}, kind.Seal{Segment: 1, First: 1, Last: 9, Count: 9, At: 1000})
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func TestSignVerify(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "keys")
	if _, err := Load(dir, false); err == nil {
		t.Fatal("a key that does not exist was loaded")
	}
	k, err := Load(dir, true)
	if err != nil {
		t.Fatal(err)
	}
	again, err := Load(dir, false)
	if err != nil || again.Public().ID() != k.Public().ID() {
		t.Fatal("another key after a second load", err)
	}
	pub, err := LoadPublic(dir)
	if err != nil || pub.ID() != k.Public().ID() {
		t.Fatal(err)
	}
	raw := signed(t, k)
	if e, s, err := pub.Verify(raw); err != nil || e.Seq != 3 || s.Last != 9 {
		t.Fatal(err, e, s)
	}
	// No byte of a seal can change. (Of the signatures, some in each run.)
	skip := rand.IntN(29)
	for i := range raw {
		if i > 400 && i < len(raw)-200 && i%29 != skip {
			continue
		}
		bad := bytes.Clone(raw)
		bad[i] ^= 1
		if _, _, err := pub.Verify(bad); err == nil {
			t.Fatalf("byte %d (%q) was changed and the seal verifies", i, raw[i])
		}
	}
	other, err := Load(t.TempDir(), true)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := other.Public().Verify(raw); !errors.Is(err, ErrKey) {
		t.Errorf("another key: %v", err)
	}
}

// One good signature is not enough, whichever it is.
func TestBothMustVerify(t *testing.T) {
	k, err := Load(t.TempDir(), true)
	if err != nil {
		t.Fatal(err)
	}
	raw := signed(t, k)
	for _, spoil := range []func(*kind.Signatures){
		func(s *kind.Signatures) { s.Ed25519 = flip(t, s.Ed25519) },
		func(s *kind.Signatures) { s.MLDSA65 = flip(t, s.MLDSA65) },
		func(s *kind.Signatures) { s.Ed25519 = "" },
		func(s *kind.Signatures) { s.MLDSA65 = "" },
	} {
		e, s, err := Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		spoil(&s.Signatures)
		if e.Body, err = jcs.Append(nil, s); err != nil {
			t.Fatal(err)
		}
		bad, err := entry.Append(nil, &e)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := k.Public().Verify(bad); !errors.Is(err, ErrSignature) {
			t.Errorf("one bad signature: %v", err)
		}
	}
}

func flip(t *testing.T, s string) string {
	b, err := base64.StdEncoding.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	b[7] ^= 4
	return base64.StdEncoding.EncodeToString(b)
}

func TestKeyFiles(t *testing.T) {
	dir := t.TempDir()
	if _, err := Load(dir, true); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, PrivateFile)
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Fatal(info.Mode(), err)
	}
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(dir, true); !errors.Is(err, ErrOpenKey) {
		t.Errorf("a key open to others: %v", err)
	}
	for _, text := range []string{"", "{}", `{"ed25519":"00","mldsa65":"00","v":"1"}`, `{"ed25519":"","mldsa65":"","v":"2"}`} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Load(dir, true); err == nil {
			t.Errorf("%q was loaded as a key", text)
		} else if strings.Contains(err.Error(), "make the ledger key") {
			t.Errorf("a damaged key was replaced: %v", err)
		}
	}
}
