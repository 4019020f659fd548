package provider

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestTransportDialsItsProviderOnly(t *testing.T) {
	hits := 0
	ours := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { hits++ }))
	defer ours.Close()
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("another host was reached") }))
	defer other.Close()
	// A proxy of the environment would see the key of every plain-http server.
	t.Setenv("HTTP_PROXY", other.URL)
	tr, err := NewTransport(ours.URL + "/v1")
	if err != nil {
		t.Fatal(err)
	}
	defer tr.CloseIdleConnections()
	get := func(url string) error {
		req, _ := http.NewRequest(http.MethodGet, url, nil)
		resp, err := tr.RoundTrip(req)
		if err == nil {
			resp.Body.Close()
		}
		return err
	}
	if err := get(ours.URL); err != nil || hits != 1 {
		t.Errorf("%v, %d hits", err, hits)
	}
	if err := get(other.URL); err == nil || !strings.Contains(err.Error(), "is not the one") {
		t.Errorf("got %v", err)
	}
	if _, err := NewTransport("nothing"); err == nil {
		t.Error("a URL without a host was taken")
	}
}
