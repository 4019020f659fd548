package seal

import (
	"crypto/ed25519"
	"crypto/mldsa"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"skep.dev/skep/internal/ledger/jcs"
	"skep.dev/skep/internal/sys/durable"
)

// The two files in a keys directory.
const (
	PrivateFile = "ledger.key"
	PublicFile  = "ledger.pub"
)

// ErrOpenKey means that a key file can be read or written by others.
var ErrOpenKey = errors.New("key file is open to others")

// Load reads the key pair in dir. If there is none and create is true it makes
// one, durable before it is returned. The public half is written beside it.
func Load(dir string, create bool) (*Signer, error) {
	path := filepath.Join(dir, PrivateFile)
	text, err := readPrivate(path)
	if errors.Is(err, fs.ErrNotExist) && create {
		if text, err = generate(dir, path); err != nil {
			return nil, fmt.Errorf("make the ledger key %s: %w", path, err)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("read the ledger key %s: %w", path, err)
	}
	k, err := parsePrivate(text)
	if err != nil {
		return nil, fmt.Errorf("read the ledger key %s: %w", path, err)
	}
	pub := filepath.Join(dir, PublicFile)
	if have, err := os.ReadFile(pub); err == nil && string(have) == k.pub.Text() {
		return k, nil
	}
	if err := writeFile(dir, pub, []byte(k.pub.Text()), 0o644); err != nil {
		return nil, fmt.Errorf("write the public ledger key %s: %w", pub, err)
	}
	return k, nil
}

// LoadPublic reads the public half in dir.
func LoadPublic(dir string) (*Public, error) {
	text, err := os.ReadFile(filepath.Join(dir, PublicFile))
	if err != nil {
		return nil, err
	}
	return ParsePublic(text)
}

func readPrivate(path string) ([]byte, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("%w: mode %v, want 0600: chmod 600 it, and ask who read it", ErrOpenKey, info.Mode())
	}
	return os.ReadFile(path)
}

func generate(dir, path string) ([]byte, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	var ed [ed25519.SeedSize]byte
	var ml [mldsa.PrivateKeySize]byte
	_, _ = rand.Read(ed[:]) // never fails: it ends the program instead
	_, _ = rand.Read(ml[:])
	text, err := jcs.Append(nil, keyText{hex.EncodeToString(ed[:]), hex.EncodeToString(ml[:]), "1"})
	if err != nil {
		return nil, err
	}
	return text, writeFile(dir, path, text, 0o600)
}

func parsePrivate(text []byte) (*Signer, error) {
	ed, ml, err := parseKeyText(text)
	if err != nil {
		return nil, err
	}
	if err := lengthError(ed, ed25519.SeedSize); err != nil {
		return nil, err
	}
	mlKey, err := mldsa.NewPrivateKey(mldsa.MLDSA65(), ml)
	if err != nil {
		return nil, err
	}
	edKey := ed25519.NewKeyFromSeed(ed)
	return &Signer{ed: edKey, ml: mlKey, pub: newPublic(edKey.Public().(ed25519.PublicKey), mlKey.PublicKey())}, nil
}

// writeFile replaces path by a file with this content, or leaves it as it was.
func writeFile(dir, path string, content []byte, mode fs.FileMode) error {
	f, err := os.CreateTemp(dir, ".new-")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(content)
	err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close())
	if err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	return durable.SyncDir(dir)
}
