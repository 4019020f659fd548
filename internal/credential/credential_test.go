package credential

import (
	"context"
	"encoding/base64"
	"net/http"
	"strings"
	"testing"
	"time"

	"skep.dev/skep/internal/credential/issuertest"
)

const subject, audience = "system:serviceaccount:prod:reviewer-7", "skep"

func TestVerify(t *testing.T) {
	i, other := issuertest.New(t), issuertest.New(t)
	v, err := Discover(t.Context(), i.Client, i.URL, audience)
	if err != nil {
		t.Fatal(err)
	}
	good := i.Token(subject, audience, time.Hour, nil)
	expiry, err := v.Verify(t.Context(), " "+good+"\n", subject)
	if left := time.Until(expiry); err != nil || left < 59*time.Minute || left > time.Hour {
		t.Fatalf("%s, %v", expiry, err)
	}
	parts := strings.Split(good, ".")
	none := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none"}`))
	for what, bad := range map[string]string{
		"another subject":   i.Token("x", audience, time.Hour, nil),
		"a longer subject":  i.Token(subject+"0", audience, time.Hour, nil),
		"another audience":  i.Token(subject, "x", time.Hour, nil),
		"expired":           i.Token(subject, audience, -time.Minute, nil),
		"without an end":    i.Token(subject, audience, time.Hour, func(c map[string]any) { delete(c, "exp") }),
		"another issuer":    other.Token(subject, audience, time.Hour, nil),
		"a forged issuer":   other.Token(subject, audience, time.Hour, func(c map[string]any) { c["iss"] = i.URL }),
		"another signature": parts[0] + "." + parts[1] + "." + strings.Split(i.Token("x", audience, time.Hour, nil), ".")[2],
		"no signature":      none + "." + parts[1] + ".",
		"nothing":           "", "no token": "x", "too long": good + strings.Repeat("x", maxToken),
	} {
		if _, err := v.Verify(t.Context(), bad, subject); err == nil {
			t.Errorf("%s: believed", what)
		} else if len(bad) > 20 && strings.Contains(err.Error(), bad[:20]) {
			t.Errorf("%s: the error holds the credential: %v", what, err)
		}
	}
	if _, err := v.Verify(t.Context(), i.Token("", audience, time.Hour, nil), ""); err == nil {
		t.Error("an empty subject is believed")
	}
	v.now = func() time.Time { return time.Now().Add(2 * time.Hour) }
	if _, err := v.Verify(t.Context(), good, subject); err == nil {
		t.Error("believed after its end")
	}
	if _, err := (&Verifier{}).Verify(context.Background(), good, subject); err == nil {
		t.Error("the zero verifier believes")
	}
}

// Discovery that fails is no start (B212).
func TestDiscover(t *testing.T) {
	i := issuertest.New(t)
	for _, c := range []struct {
		client           *http.Client
		issuer, audience string
	}{
		{i.Client, i.URL, ""},
		{i.Client, i.URL + "/other", audience},
		{&http.Client{}, i.URL, audience}, // its certificate is nobody's
		{i.Client, strings.Replace(i.URL, "https", "http", 1), audience},
		{i.Client, "https://user@x.example", audience},
		{i.Client, "", audience},
	} {
		if _, err := Discover(t.Context(), c.client, c.issuer, c.audience); err == nil {
			t.Errorf("%+v: discovered", c)
		}
	}
}
