package authority

import (
	"crypto/x509"
	"testing"
	"time"
)

// Who goes on with an authority signs what the cell trusts already; and nobody goes on with
// one for other names, or with half of one.
func TestInherit(t *testing.T) {
	now := time.Now()
	a, err := New([]string{"a.test", "b.test"}, now)
	if err != nil {
		t.Fatal(err)
	}
	left, err := a.Leave()
	if err != nil {
		t.Fatal(err)
	}
	b, err := Inherit([]string{"a.test", "b.test"}, left)
	if err != nil || string(a.Root()) != string(b.Root()) {
		t.Fatal(err)
	}
	c, err := b.Leaf("b.test", now)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(c.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	roots, middle := x509.NewCertPool(), x509.NewCertPool()
	roots.AppendCertsFromPEM(a.Root())
	middle.AddCert(a.cert)
	if _, err := leaf.Verify(x509.VerifyOptions{DNSName: "b.test", Roots: roots, Intermediates: middle}); err != nil {
		t.Error(err)
	}
	other, err := New([]string{"a.test", "b.test"}, now)
	if err != nil {
		t.Fatal(err)
	}
	foreign, err := other.Leave()
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		hosts []string
		left  []byte
	}{
		"other names": {[]string{"a.test"}, left}, "nothing": {[]string{"a.test", "b.test"}, nil}, "half": {[]string{"a.test", "b.test"}, left[:len(left)/2]},
		"two": {[]string{"a.test", "b.test"}, append(append([]byte(nil), left...), foreign...)}, "text": {[]string{"a.test", "b.test"}, []byte("x")},
	} {
		if _, err := Inherit(c.hosts, c.left); err == nil {
			t.Errorf("%s: inherited", name)
		}
	}
}
