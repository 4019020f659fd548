package sshagent

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/binary"
	"testing"

	"golang.org/x/crypto/ssh"
)

func signer(t testing.TB, key any) ssh.Signer {
	t.Helper()
	s, err := ssh.NewSignerFromKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func newKey(t testing.TB) ssh.Signer {
	t.Helper()
	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	return signer(t, private)
}

func signRequest(key, data []byte, flags uint32) []byte {
	return binary.BigEndian.AppendUint32(appendString(appendString([]byte{msgSign}, key), data), flags)
}

// login is what a client signs to log in.
func login(session []byte, method string, key []byte, more ...[]byte) []byte {
	b := append(appendString(nil, session), 50)
	for _, s := range []string{"git", "ssh-connection", method} {
		b = appendString(b, []byte(s))
	}
	b = appendString(append(b, 1), []byte("ssh-ed25519"))
	b = appendString(b, key)
	for _, m := range more {
		b = appendString(b, m)
	}
	return b
}

// bindTo is how a client tells its agent whom it speaks with.
func bindTo(t testing.TB, host ssh.Signer, session []byte, forwarded byte) []byte {
	t.Helper()
	s, err := host.Sign(rand.Reader, session)
	if err != nil {
		t.Fatal(err)
	}
	signature := appendString(appendString(nil, []byte(s.Format)), s.Blob)
	b := appendString([]byte{msgExtension}, []byte("session-bind@openssh.com"))
	for _, part := range [][]byte{host.PublicKey().Marshal(), session, signature} {
		b = appendString(b, part)
	}
	return append(b, forwarded)
}

// TestTwoRequestsGoOn: to list, and to sign with a key of the page; and they are written anew.
func TestTwoRequestsGoOn(t *testing.T) {
	mine, other := newKey(t).PublicKey().Marshal(), newKey(t).PublicKey().Marshal()
	s := &Session{Page: &Page{Keys: []string{Fingerprint(mine)}}}
	if v := s.Judge([]byte{msgIdentities}); !v.List || v.Answer != nil || v.Sign != nil {
		t.Errorf("a list: %+v", v)
	}
	if v := s.Judge(signRequest(mine, []byte("x"), 2)); !bytes.Equal(v.Sign, signRequest(mine, []byte("x"), 2)) || v.Key != Fingerprint(mine) {
		t.Errorf("a signature: %+v", v)
	}
	for name, c := range map[string]struct {
		message []byte
		reason  string
	}{
		"another key":         {signRequest(other, []byte("x"), 0), "key-not-granted"},
		"no key":              {signRequest(nil, []byte("x"), 0), "malformed"},
		"flags":               {signRequest(mine, nil, 1), "malformed"},
		"more behind":         {append(signRequest(mine, nil, 0), 0), "malformed"},
		"cut":                 {signRequest(mine, nil, 0)[:20], "malformed"},
		"list with more":      {[]byte{msgIdentities, 0}, "operation-not-granted"},
		"nothing":             {nil, "malformed"},
		"remove all":          {[]byte{19}, "operation-not-granted"},
		"an extension":        {appendString([]byte{msgExtension}, []byte("query")), "operation-not-granted"},
		"a length of 4 GiB":   {[]byte{msgSign, 255, 255, 255, 255}, "malformed"},
		"an agent's answer":   {[]byte{msgIdentitiesAnswer, 0, 0, 0, 0}, "operation-not-granted"},
		"lock":                {appendString([]byte{22}, []byte("p")), "operation-not-granted"},
		"add with constraint": {[]byte{25}, "operation-not-granted"},
	} {
		if v := s.Judge(c.message); v.Reason != c.reason || !bytes.Equal(v.Answer, Failure()) || v.List || v.Sign != nil || v.Did == "" {
			t.Errorf("%s: %+v", name, v)
		}
	}
	if Fingerprint(mine) != ssh.FingerprintSHA256(mustParse(t, mine)) {
		t.Error("a fingerprint is not as ssh-add shows it")
	}
}

func mustParse(t *testing.T, blob []byte) ssh.PublicKey {
	t.Helper()
	k, err := ssh.ParsePublicKey(blob)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// TestBoundToHosts: where the page names hosts, a signature goes on only for a login to a
// session which one of their keys has signed, on the same connection.
func TestBoundToHosts(t *testing.T) {
	host, stranger, key := newKey(t), newKey(t), newKey(t).PublicKey().Marshal()
	page := &Page{Bound: true, Hosts: []HostKey{{"git.test:22", host.PublicKey().Marshal()}}}
	session := bytes.Repeat([]byte{7}, 32)
	good := signRequest(key, login(session, "publickey", key), 0)
	bound := func(messages ...[]byte) *Session {
		s := &Session{Page: page}
		for _, m := range messages {
			s.Judge(m)
		}
		return s
	}
	here := bindTo(t, host, session, 0)
	if v := bound(here).Judge(good); v.Sign == nil || v.Host != "git.test:22" {
		t.Errorf("a login at the host: %+v", v)
	}
	hostbound := login(session, "publickey-hostbound-v00@openssh.com", key, host.PublicKey().Marshal())
	if v := bound(here).Judge(signRequest(key, hostbound, 0)); v.Sign == nil {
		t.Errorf("a login of today: %+v", v)
	}
	forged := bytes.Clone(here)
	forged[len(forged)-2] ^= 1
	for name, c := range map[string]struct {
		s       *Session
		message []byte
	}{
		"without a binding":       {bound(), good},
		"bound to a stranger":     {bound(bindTo(t, stranger, session, 0)), good},
		"another session":         {bound(bindTo(t, host, []byte("another"), 0)), good},
		"a forged binding":        {bound(forged), good},
		"forged, then good":       {bound(forged, here), good},
		"both, for one session":   {bound(here, bindTo(t, stranger, session, 0)), good},
		"forwarded":               {bound(bindTo(t, host, session, 1)), good},
		"forwarded later":         {bound(here, bindTo(t, host, []byte("next"), 1)), good},
		"a file, no login":        {bound(here), signRequest(key, append([]byte("SSHSIG"), "..."...), 0)},
		"a login by another key":  {bound(here), signRequest(key, login(session, "publickey", host.PublicKey().Marshal()), 0)},
		"a login of another kind": {bound(here), signRequest(key, login(session, "hostbased", key), 0)},
		"more behind":             {bound(here), signRequest(key, append(login(session, "publickey", key), 0), 0)},
		"nothing":                 {bound(here), signRequest(key, nil, 0)},
	} {
		if v := c.s.Judge(c.message); v.Reason != "host-not-granted" || v.Sign != nil {
			t.Errorf("%s: %+v", name, v)
		}
	}
	many := bound()
	for i := range MaxBinds + 1 {
		many.Judge(bindTo(t, host, binary.BigEndian.AppendUint32(nil, uint32(i)), 0))
	}
	if len(many.binds) > MaxBinds {
		t.Errorf("%d bindings are kept", len(many.binds))
	}
}

// TestHostsKeysOfEachKind compares with another's signatures.
func TestHostsKeysOfEachKind(t *testing.T) {
	made, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	hosts := []ssh.Signer{newKey(t), signer(t, made)}
	for _, curve := range []elliptic.Curve{elliptic.P256(), elliptic.P384(), elliptic.P521()} {
		k, err := ecdsa.GenerateKey(curve, rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		hosts = append(hosts, signer(t, k))
	}
	data := []byte("a session")
	for _, h := range hosts {
		kinds := []string{h.PublicKey().Type()}
		if kinds[0] == ssh.KeyAlgoRSA {
			kinds = []string{ssh.KeyAlgoRSASHA256, ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSA}
		}
		for _, kind := range kinds {
			s, err := h.(ssh.AlgorithmSigner).SignWithAlgorithm(rand.Reader, data, kind)
			if err != nil {
				t.Fatal(err)
			}
			blob := appendString(appendString(nil, []byte(s.Format)), s.Blob)
			key := h.PublicKey().Marshal()
			if err := verify(key, data, blob); (err == nil) != (kind != ssh.KeyAlgoRSA) { // which is SHA-1
				t.Errorf("%s: %v", kind, err)
			}
			if verify(key, []byte("another"), blob) == nil || verify(newKey(t).PublicKey().Marshal(), data, blob) == nil {
				t.Errorf("%s: a signature of another session, or by another key, is taken", kind)
			}
			for i := range blob {
				bent := bytes.Clone(blob)
				bent[i] ^= 0x40
				if i%7 == 0 && verify(key, data, bent) == nil {
					t.Errorf("%s: a signature with byte %d bent is taken", kind, i)
				}
			}
		}
	}
}

// TestShown: of what the agent has, a cell sees the keys of its page.
func TestShown(t *testing.T) {
	mine, other := newKey(t).PublicKey().Marshal(), newKey(t).PublicKey().Marshal()
	answer := []byte{msgIdentitiesAnswer, 0, 0, 0, 2}
	for _, k := range [][]byte{other, mine} {
		answer = appendString(appendString(answer, k), []byte("comment"))
	}
	want := appendString(appendString([]byte{msgIdentitiesAnswer, 0, 0, 0, 1}, mine), []byte("comment"))
	page := &Page{Keys: []string{Fingerprint(mine)}}
	if got, err := page.Shown(answer); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := (&Page{}).Shown(answer); err != nil || !bytes.Equal(got, answer) {
		t.Errorf("without a list of keys: %q, %v", got, err)
	}
	for _, bad := range [][]byte{nil, {msgFailure}, answer[:len(answer)-1], append(bytes.Clone(answer), 0), {msgIdentitiesAnswer, 255, 255, 255, 255}} {
		if _, err := page.Shown(bad); err == nil {
			t.Errorf("%q is taken for a list", bad)
		}
	}
	if got := Signed([]byte{msgSignResponse, 0, 0, 0, 1, 9}); got[0] != msgSignResponse {
		t.Error("a signature is not passed")
	}
	for _, bad := range [][]byte{nil, {msgSuccess}, {msgSignResponse}, {msgSignResponse, 0, 0, 0, 1, 9, 9}} {
		if !bytes.Equal(Signed(bad), Failure()) {
			t.Errorf("%q is passed for a signature", bad)
		}
	}
}

// FuzzJudge: nothing goes on but a signature by a granted key, exactly as it was understood.
func FuzzJudge(f *testing.F) {
	key, host := newKey(f).PublicKey().Marshal(), newKey(f)
	session := []byte("session")
	f.Add(signRequest(key, []byte("x"), 4), []byte{19})
	f.Add(bindTo(f, host, session, 0), signRequest(key, login(session, "publickey", key), 0))
	f.Add([]byte{msgIdentities}, appendString([]byte{msgExtension}, []byte("session-bind@openssh.com")))
	f.Fuzz(func(t *testing.T, first, second []byte) {
		for _, page := range []*Page{
			{Keys: []string{Fingerprint(key)}}, {Bound: true, Hosts: []HostKey{{"h:22", host.PublicKey().Marshal()}}}, {Keys: []string{"SHA256:none"}},
		} {
			s := &Session{Page: page}
			for _, m := range [][]byte{first, second} {
				v := s.Judge(m)
				if n := count(v.Answer != nil, v.List, v.Sign != nil); n != 1 {
					t.Fatalf("%q: %d outcomes: %+v", m, n, v)
				}
				if v.Sign == nil {
					continue
				}
				r := &reader{rest: v.Sign[1:]}
				if !bytes.Equal(v.Sign, m) || !page.Grants(Fingerprint(r.string())) || page.Bound && v.Host != "h:22" {
					t.Fatalf("%q goes on as %q", m, v.Sign)
				}
			}
		}
	})
}

func count(all ...bool) (n int) {
	for _, is := range all {
		if is {
			n++
		}
	}
	return n
}

// FuzzShown: what a cell sees of any answer is a list of granted keys, or nothing.
func FuzzShown(f *testing.F) {
	key := newKey(f).PublicKey().Marshal()
	f.Add(appendString(appendString([]byte{msgIdentitiesAnswer, 0, 0, 0, 1}, key), nil))
	f.Fuzz(func(t *testing.T, answer []byte) {
		page := &Page{Keys: []string{Fingerprint(key)}}
		got, err := page.Shown(answer)
		if err != nil {
			return
		}
		again, err := page.Shown(got)
		if err != nil || !bytes.Equal(again, got) || len(got) > len(answer) {
			t.Fatalf("%q becomes %q, then %q: %v", answer, got, again, err)
		}
	})
}

// FuzzVerify: no key and signature of a stranger's making panic or pass.
func FuzzVerify(f *testing.F) {
	key := newKey(f)
	s, err := key.Sign(rand.Reader, []byte("data"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(key.PublicKey().Marshal(), appendString(appendString(nil, []byte(s.Format)), s.Blob))
	f.Fuzz(func(t *testing.T, key, signature []byte) {
		if verify(key, []byte("data"), signature) != nil {
			return
		}
		public, err := ssh.ParsePublicKey(key)
		if err != nil {
			t.Fatalf("a key that nobody else reads: %v", err)
		}
		r := &reader{rest: signature}
		other := &ssh.Signature{Format: string(r.string()), Blob: r.string()}
		if err := public.Verify([]byte("data"), other); err != nil {
			t.Fatalf("a signature that nobody else takes: %v", err)
		}
	})
}
