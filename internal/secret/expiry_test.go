package secret

import (
	"encoding/base64"
	"testing"
	"time"
)

// A JSON Web Token says its own end; nothing else has one.
func TestExpiry(t *testing.T) {
	token := func(claims string) []byte {
		return []byte("e30." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".c2ln\n")
	}
	if got := Expiry(token(`{"exp": 1700000000.5, "sub": "x"}`)); !got.Equal(time.Unix(1700000000, 0)) {
		t.Error(got)
	}
	for _, other := range [][]byte{token(`{"exp": 0}`), token(`{"exp": "1700000000"}`), token(`{"exp": 1e300}`), token(`[1]`), []byte("a.b"), []byte("a.!.c"), []byte("ghp_value"), nil} {
		if got := Expiry(other); !got.IsZero() {
			t.Errorf("%q ends at %s", other, got)
		}
	}
}
