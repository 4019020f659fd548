package vault

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"time"

	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/secret"
	"skep.dev/skep/internal/secret/parcel"
)

const mark = "skep-secret-gh-01234567"

func made(t *testing.T) *Vault {
	t.Helper()
	v, err := New([]secret.Bound{{Binding: secret.Binding{Name: "gh", Hosts: []string{"a.test"}, As: []secret.Place{{Kind: secret.Bearer}}}, Placeholder: mark}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(v.Close)
	return v
}

func packed(t *testing.T, items ...parcel.Item) *os.File {
	t.Helper()
	f, err := parcel.Pack(items)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// filled is what a request goes on with, "" with the reason where it does not.
func (v *Vault) filled() (string, flow.Reason) {
	h, _, why := v.Keeper.Head("a.test", 443, time.Now(), secret.Head{Method: "GET", Target: []byte("/"), Version: "HTTP/1.1", Fields: []secret.Field{{Name: "Authorization", Value: []byte("Bearer " + mark)}}})
	if why != flow.None {
		return "", why
	}
	return string(h.Fields[0].Value), why
}

// TestVault: values come in a sealed parcel and are replaced as a whole; what is missing,
// ended or no value is none; another box goes on with all of it, and with nothing else.
func TestVault(t *testing.T) {
	v := made(t)
	if _, why := v.filled(); why != flow.SecretUnavailable {
		t.Errorf("without a value: %s", why.Token())
	}
	typed := []byte("value-one-1\n")
	if err := v.Fill(packed(t, parcel.Item{Name: "gh", Value: typed})); err != nil {
		t.Fatal(err)
	}
	if got, _ := v.filled(); got != "Bearer value-one-1" || !bytes.Equal(typed, make([]byte, len(typed))) {
		t.Errorf("%q, and the sender still has %q", got, typed)
	}
	if err := v.Fill(packed(t, parcel.Item{Name: "gh", Value: []byte("value-two-2"), Until: time.Now().Add(time.Hour)})); err != nil {
		t.Fatal(err)
	}
	if got, _ := v.filled(); got != "Bearer value-two-2" || len(v.held) != 1 {
		t.Errorf("%q", got)
	}
	if err := v.Found(time.Now()); err != nil {
		t.Fatal(err)
	}
	next := made(t)
	n := 0
	if err := v.Leave(func(b []byte) error { n++; return next.Inherit(bytes.Clone(b)) }); err != nil || n != 2 {
		t.Fatal(err, n)
	}
	if got, _ := next.filled(); got != "Bearer value-two-2" || string(next.Authority.Root()) != string(v.Authority.Root()) {
		t.Errorf("the next box fills in %q", got)
	}
	for what, items := range map[string][]parcel.Item{
		"missing": nil, "no value": {{Name: "gh", Value: []byte("short")}}, "ended": {{Name: "gh", Value: []byte("value-two-2"), Until: time.Now().Add(-time.Second)}},
	} {
		err := v.Fill(packed(t, items...))
		if _, why := v.filled(); why != flow.SecretUnavailable || (err != nil) != (what == "no value") || err != nil && strings.Contains(err.Error(), "short") {
			t.Errorf("%s: %s, %v", what, why.Token(), err)
		}
	}
	var none *Vault
	if none.Inherit([]byte("x")) == nil || none.Leave(nil) != nil || !none.Has(nil) || none.Has(v.bound) || v.Has(nil) || !v.Has(v.bound) {
		t.Error("a cell without secrets has some")
	}
	v.Close()
	if _, why := v.filled(); why != flow.SecretUnavailable || len(v.held) != 0 {
		t.Errorf("after the end: %s", why.Token())
	}
}

// A parcel that can be changed under the reader, or is none, gives nothing.
func TestParcelsThatAreNone(t *testing.T) {
	open, err := os.Create(t.TempDir() + "/open")
	if err != nil {
		t.Fatal(err)
	}
	v := made(t)
	if err := v.Fill(open); err == nil {
		t.Error("a file that anybody may change is taken")
	}
	for _, raw := range []string{"x", strings.Repeat("\x00", 12), "\x02\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff\xff\xffgh", "\x02\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x0cghvalue"} {
		if err := v.Inherit([]byte(raw)); err == nil {
			t.Errorf("%q is taken", raw)
		}
	}
	if _, why := v.filled(); why != flow.SecretUnavailable {
		t.Errorf("%s", why.Token())
	}
}
