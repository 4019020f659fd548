// Package issuertest is an OIDC issuer of our own, on loopback, for tests.
package issuertest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// Issuer signs what it is told to.
type Issuer struct {
	URL    string
	Client *http.Client // believes its certificate
	CA     []byte       // PEM

	t      testing.TB
	signer jose.Signer
}

// New begins an issuer that ends with the test.
func New(t testing.TB) *Issuer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	i := &Issuer{t: t}
	if i.signer, err = jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: key, KeyID: "k"}}, nil); err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	answer := func(path string, value any) {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(value)
		})
	}
	server := httptest.NewTLSServer(mux)
	t.Cleanup(server.Close)
	i.URL, i.Client = server.URL, server.Client()
	i.CA = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	answer("/.well-known/openid-configuration", map[string]any{
		"issuer": i.URL, "jwks_uri": i.URL + "/keys", "authorization_endpoint": i.URL + "/a", "token_endpoint": i.URL + "/t",
		"id_token_signing_alg_values_supported": []string{"ES256"},
	})
	answer("/keys", jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: "k", Algorithm: "ES256", Use: "sig"}}})
	return i
}

// Token vouches for a subject before an audience, for so long; change alters its claims.
func (i *Issuer) Token(subject, audience string, long time.Duration, change func(map[string]any)) string {
	i.t.Helper()
	now := time.Now()
	claims := map[string]any{"iss": i.URL, "sub": subject, "aud": audience, "iat": now.Unix(), "exp": now.Add(long).Unix()}
	if change != nil {
		change(claims)
	}
	raw, err := json.Marshal(claims)
	if err != nil {
		i.t.Fatal(err)
	}
	signed, err := i.signer.Sign(raw)
	if err != nil {
		i.t.Fatal(err)
	}
	token, err := signed.CompactSerialize()
	if err != nil {
		i.t.Fatal(err)
	}
	return token
}
