package cells

import (
	"crypto/rand"
	"encoding/base32"
	"errors"
	"fmt"
	"strings"
)

// alphabet is RFC 4648 base32 in lower case: 26 characters hold 128 bits.
const alphabet = "abcdefghijklmnopqrstuvwxyz234567"

// Length and MinPrefix of an id (L19a).
const (
	Length    = 26
	MinPrefix = 4
)

// NewID makes a cell's id: 128 random bits.
func NewID() string {
	var raw [16]byte
	_, _ = rand.Read(raw[:]) // never fails (crypto/rand)
	return base32.NewEncoding(alphabet).WithPadding(base32.NoPadding).EncodeToString(raw[:])
}

// ValidID tells whether s has the form of an id.
func ValidID(s string) bool {
	return len(s) == Length && strings.Trim(s, alphabet) == ""
}

// CheckName says what is wrong with a name that a person gives to a cell.
func CheckName(name string) error {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_."
	switch {
	case name == "":
		return nil
	case name == "last":
		return errors.New("the name last always means the newest cell: choose another")
	case len(name) > 64 || strings.Trim(name, letters) != "" || name[0] == '-' || name[0] == '.':
		return fmt.Errorf("name %q: use at most 64 letters, digits, '-', '_' and '.', beginning with a letter or digit", name)
	case len(name) >= MinPrefix && strings.Trim(name, alphabet) == "" && len(name) == Length:
		return fmt.Errorf("name %q looks like a cell id: choose another", name)
	}
	return nil
}
