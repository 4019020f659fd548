package issuer

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"skep.dev/skep/internal/credential"
	"skep.dev/skep/internal/credential/issuertest"
)

func TestClient(t *testing.T) {
	i := issuertest.New(t)
	own, err := Client(i.CA)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := credential.Discover(t.Context(), own, i.URL, "skep"); err != nil {
		t.Errorf("with its certificate: %v", err)
	}
	hosts, err := Client(nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := credential.Discover(t.Context(), hosts, i.URL, "skep"); err == nil {
		t.Error("a certificate that nobody vouches for is believed")
	}
	if _, err := Client([]byte("nothing")); !errors.Is(err, ErrCA) {
		t.Errorf("%v", err)
	}
	away := httptest.NewServer(http.RedirectHandler(i.URL, http.StatusFound))
	defer away.Close()
	a, err := own.Get(away.URL)
	if err != nil || a.StatusCode != http.StatusFound {
		t.Errorf("%+v, %v", a, err)
	}
}
