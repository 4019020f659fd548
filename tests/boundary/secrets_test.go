package boundary

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"skep.dev/skep/internal/testlab"
	"skep.dev/skep/tests/journey"
)

// vault is a host whose cells have secrets, before servers of the lab.
type vault struct {
	*host
	value string // of the secret gh
	file  string // its source
}

// secretive prepares cells with the net rules and secrets of a profile; FILE in it is the
// source of gh.
func secretive(t *testing.T, lab *testlab.Lab, rules string) *vault {
	t.Helper()
	roots, err := os.ReadFile(lab.CAFile())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"api.test", "other.test", "plain.test"} {
		lab.Host(name, "93.184.216.34")
	}
	v := &vault{host: open(t, lab, "")}
	lab.Ceiling("roots: file:" + v.Beside("roots.pem", string(roots)) + "\n")
	v.value = "v4l-" + random(t)
	v.file = v.Beside("gh.key", v.value+"\n")
	if err := os.Chmod(v.file, 0o600); err != nil {
		t.Fatal(err)
	}
	v.Rules(strings.ReplaceAll(rules, "FILE", v.file))
	return v
}

func random(t *testing.T) string {
	t.Helper()
	var b [12]byte
	if _, err := rand.Read(b[:]); err != nil {
		t.Fatal(err)
	}
	return hex.EncodeToString(b[:])
}

// sh runs a script in a cell.
func (v *vault) sh(script string) journey.Result {
	v.t.Helper()
	r := v.Try("run", "--yes", "--quiet", "--profile", v.profile, "--", "/bin/sh", "-c", script)
	v.t.Logf("%s\n%d: %s%s", script, r.Code, r.Out, r.Err)
	return r
}

const bearer = "net: [{name: api.test}, {name: other.test}, {name: plain.test}]\nsecrets: [{name: gh, source: \"file:FILE\", hosts: [api.test], as: [bearer, basic], env: GH_TOKEN}]\n"

// said is every value of a header that reached the servers.
func (v *vault) said(header string) (all []string) {
	for _, q := range v.lab.Requests() {
		all = append(all, q.Header.Get(header))
	}
	return all
}

// nowhere demands that the value is in no file that Skep keeps, nor in any output.
func (v *vault) nowhere(outputs ...string) {
	v.t.Helper()
	for _, out := range outputs {
		if strings.Contains(out, v.value) {
			v.t.Errorf("an output has the value:\n%s", out)
		}
	}
	for _, dir := range []string{"state", "run", "own", "config", "home"} {
		_ = filepath.Walk(filepath.Join(v.Dir, dir), func(path string, info os.FileInfo, err error) error {
			if err != nil || !info.Mode().IsRegular() {
				return nil
			}
			raw, err := os.ReadFile(path)
			if err == nil && strings.Contains(string(raw), v.value) {
				v.t.Errorf("%s has the value", path)
			}
			return nil
		})
	}
}

// TestBS1ValueIsFilledIn: the destination gets the value where the cell said its
// placeholder, and nothing of the cell, of its record or of Skep's own files has it.
func TestBS1ValueIsFilledIn(t *testing.T) {
	testlab.Test(t, func(t *testing.T, lab *testlab.Lab) {
		lab.HTTPS("93.184.216.34:443", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "hello "+r.URL.Path) }))
		v := secretive(t, lab, bearer)
		r := v.sh(`echo "$GH_TOKEN"; curl -sS -H "Authorization: Bearer $GH_TOKEN" https://api.test/one; curl -sS -u "me:$GH_TOKEN" https://api.test/two`)
		if r.Code != 0 || !strings.HasPrefix(r.Out, "skep-secret-gh-") || !strings.Contains(r.Out, "hello /one") || !strings.Contains(r.Out, "hello /two") {
			t.Fatalf("%+v", r)
		}
		if said := v.said("Authorization"); len(said) != 2 || said[0] != "Bearer "+v.value || !strings.HasPrefix(said[1], "Basic ") {
			t.Errorf("the destination got %q", said)
		}
		used := 0
		for _, e := range v.all() {
			if e.Kind == "secret.used" {
				used++
				if e.Body["secret"] != "gh" || e.Body["host"] != "api.test" || e.Body["decision"] != "allow" {
					t.Errorf("%+v", e)
				}
			}
		}
		if used != 2 {
			t.Errorf("%d uses are recorded", used)
		}
		v.nowhere(r.Out, r.Err)
	})
}

// echoes answers with what it got, as JSON, and keeps the bodies.
type echoes struct {
	mu     sync.Mutex
	bodies []string
}

func (e *echoes) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	e.mu.Lock()
	e.bodies = append(e.bodies, r.URL.RequestURI()+" "+string(body)+" "+strconv.FormatInt(r.ContentLength, 10))
	e.mu.Unlock()
	switch r.URL.Path {
	case "/echo":
		_, _ = io.WriteString(w, "you said "+r.Header.Get("Authorization"))
	case "/echohead":
		w.Header().Set("X-Said", r.Header.Get("Authorization"))
	case "/away":
		http.Redirect(w, r, "https://other.test/landed", http.StatusFound)
	default:
		_, _ = io.WriteString(w, "served\n")
	}
}

func (e *echoes) all() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return strings.Join(e.bodies, "\n")
}

// reasons is what the record says of misuses.
func (v *vault) reasons() map[string]int {
	v.t.Helper()
	out := map[string]int{}
	for _, e := range v.all() {
		if e.Kind == "secret.used" && e.Body["decision"] == "block" {
			out[e.Body["reason"].(string)]++
		}
		if raw, err := json.Marshal(e); err != nil || strings.Contains(string(raw), v.value) || strings.Contains(string(raw), "skep-secret-gh-") {
			v.t.Errorf("the record holds the value or its placeholder: %s %v", raw, err)
		}
	}
	return out
}

// TestBS3OtherPlaces: in each place that the binding does not name the request is refused and
// the destination has nothing of it; where it names them, the value stands there (C07).
func TestBS3OtherPlacesC07(t *testing.T) {
	testlab.Test(t, func(t *testing.T, lab *testlab.Lab) {
		got := &echoes{}
		lab.HTTPS("93.184.216.34:443", got)
		v := secretive(t, lab, bearer)
		r := v.sh(`try() { curl -s -o /dev/null -w '%{http_code} %header{boundary-reason}\n' "$@"; }
try -H "Cookie: a=$GH_TOKEN" https://api.test/1
try -A "$GH_TOKEN" https://api.test/2
try -e "https://x/$GH_TOKEN" https://api.test/3
try "https://api.test/4?q=$GH_TOKEN"
try "https://api.test/$GH_TOKEN"
try -d "{\"t\":\"$GH_TOKEN\"}" -H "Content-Type: application/json" https://api.test/5
try -d "t=$GH_TOKEN" https://api.test/6
try -H "Authorization: Bearer $GH_TOKEN" -H "X-Again: $GH_TOKEN" https://api.test/7
try -H "Authorization: Bearer x$GH_TOKEN" https://api.test/8
try -H "Authorization: Token $GH_TOKEN" https://api.test/9
try -H "Authorization: Bearer $GH_TOKEN" https://api.test/fine
`)
		lines := strings.Split(strings.TrimSpace(r.Out), "\n")
		for i, line := range lines {
			want := "403 secret in a place that its rule does not name"
			if i == len(lines)-1 {
				want = "200 "
			}
			if strings.TrimRight(line, " ") != strings.TrimRight(want, " ") {
				t.Errorf("%d: %s, want %s", i+1, line, want)
			}
		}
		if all := got.all(); len(lines) != 11 || strings.Count(all, "\n") > 2 || strings.Contains(all, v.value) || strings.Contains(all, "skep-secret") {
			t.Errorf("the destination got\n%s", all)
		}
		if why := v.reasons(); why["secret-misplaced"] != 10 {
			t.Errorf("the record has %v", why)
		}
		v.nowhere(r.Out, r.Err)
	})
}

// TestC09OptedInPlaces: a query, a JSON member and a form field are filled where the profile
// says so, with the length that the body has then.
func TestBS3OptedInPlacesC09(t *testing.T) {
	testlab.Test(t, func(t *testing.T, lab *testlab.Lab) {
		got := &echoes{}
		lab.HTTPS("93.184.216.34:443", got)
		v := secretive(t, lab, "net: [{name: api.test}]\nsecrets: [{name: gh, source: \"file:FILE\", hosts: [api.test], as: [\"query:key\", \"json:token\", \"form:token\", \"header:x-api-key\"], env: K}]\n")
		r := v.sh(`set -e
curl -sSf "https://api.test/q?a=b&key=$K"
curl -sSf -H "Content-Type: application/json" -d "{\"token\": \"$K\", \"n\": 1}" https://api.test/j
curl -sSf -d "grant=x&token=$K" https://api.test/f
curl -sSf -H "X-Api-Key: $K" https://api.test/h`)
		if r.Code != 0 || strings.Count(r.Out, "served") != 4 {
			t.Fatalf("%+v", r)
		}
		all := got.all()
		for _, want := range []string{"/q?a=b&key=" + v.value, fmt.Sprintf(`{"token": %q, "n": 1} %d`, v.value, len(v.value)+len(`{"token": "", "n": 1}`)), fmt.Sprintf("grant=x&token=%s %d", v.value, len(v.value)+len("grant=x&token="))} {
			if !strings.Contains(all, want) {
				t.Errorf("the destination did not get %s but\n%s", want, all)
			}
		}
		if keys := v.said("X-Api-Key"); keys[len(keys)-1] != v.value {
			t.Errorf("%q", keys)
		}
		v.nowhere(r.Out, r.Err)
	})
}

// TestBS4OtherHosts: a placeholder, in whatever encoding, is refused at every other host that
// can be read; what cannot be read gets worthless text; a placeholder of nobody is unknown (C08).
func TestBS4OtherHostsC08(t *testing.T) {
	testlab.Test(t, func(t *testing.T, lab *testlab.Lab) {
		got := &echoes{}
		lab.HTTPS("93.184.216.34:443", got)
		lab.HTTP("93.184.216.34:80", got)
		v := secretive(t, lab, `net: [{name: api.test}, {name: other.test}, {name: plain.test, ports: [80, 443]}]
secrets:
  - {name: gh, source: "file:FILE", hosts: [api.test], as: [bearer, "header:x-key"], env: GH_TOKEN}
  - {name: two, source: "file:FILE", hosts: [other.test], as: ["header:x-two"], env: TWO}
`)
		r := v.sh(`try() { curl -s -o /dev/null -w '%{http_code} %header{boundary-reason}\n' "$@"; }
P=$(printf %s "$GH_TOKEN" | sed 's/-/%2D/g'); J=$(printf %s "$GH_TOKEN" | sed 's/-/\\u002d/g'); B=$(printf %s "x$GH_TOKEN" | base64 -w0)
for h in https://other.test http://plain.test; do
try -H "Authorization: Bearer $GH_TOKEN" $h/1
try "$h/2?q=$P"
try -d "{\"a\":\"$J\"}" $h/3
try -d "a=$B" $h/4
(printf 'a='; printf %s "$GH_TOKEN" | cut -c1-9 | tr -d '\n'; sleep .2; printf %s "$GH_TOKEN" | cut -c10-) | try -H 'Content-Length: 25' -H Transfer-Encoding: -T - $h/5
done
try -H "Authorization: Bearer skep-secret-nobody-00000000" https://api.test/6
curl -sS -H "Authorization: Bearer $GH_TOKEN" https://plain.test/opaque
`)
		lines := strings.Split(strings.TrimSpace(r.Out), "\n")
		for i, line := range lines {
			want := "403 secret not for this destination"
			switch i {
			case 10:
				want = "403 no such secret"
			case 11:
				want = "served"
			}
			if line != want {
				t.Errorf("%d: %q, want %q", i+1, line, want)
			}
		}
		if all := strings.Join(append(v.said("Authorization"), got.all()), " "); len(lines) != 12 || strings.Contains(all, v.value) {
			t.Errorf("%d lines; the destinations got %s", len(lines), all)
		}
		why := v.reasons()
		if why["secret-not-bound"] != 10 || why["secret-unknown"] != 1 {
			t.Errorf("the record has %v", why)
		}
		v.nowhere(r.Out, r.Err)
	})
}

// TestBS5OtherPortOrPath: the value is filled in below its path and on its port alone.
func TestBS5OtherPortOrPath(t *testing.T) {
	testlab.Test(t, func(t *testing.T, lab *testlab.Lab) {
		got := &echoes{}
		lab.HTTPS("93.184.216.34:443", got)
		lab.HTTPS("93.184.216.34:8443", got)
		v := secretive(t, lab, `net: [{name: api.test, ports: [443, 8443]}]
secrets: [{name: gh, source: "file:FILE", hosts: [api.test], path: /me/repo, as: [bearer], env: GH_TOKEN}]
`)
		r := v.sh(`try() { curl -s --path-as-is -o /dev/null -w '%{http_code} ' -H "Authorization: Bearer $GH_TOKEN" "$@"; }
try https://api.test/me/repo; try https://api.test/me/repo/x; try https://api.test/me/repository; try https://api.test/; try https://api.test/me/repo/../other; try https://api.test/me/repo%2f..%2fx; try https://api.test:8443/me/repo`)
		if r.Out != "200 200 403 403 403 403 200 " {
			t.Errorf("%q", r.Out)
		}
		for i, said := range v.said("Authorization") {
			if has := strings.Contains(said, v.value); has != (i < 2) {
				t.Errorf("request %d of the destinations said %q", i, said)
			}
		}
		v.nowhere(r.Out, r.Err)
	})
}

// TestBS6Redirects: what follows a redirect to another host carries the placeholder at most.
func TestBS6Redirects(t *testing.T) {
	testlab.Test(t, func(t *testing.T, lab *testlab.Lab) {
		lab.HTTPS("93.184.216.34:443", &echoes{})
		v := secretive(t, lab, bearer)
		r := v.sh(`curl -sS --location-trusted -H "Authorization: Bearer $GH_TOKEN" https://api.test/away`)
		said := v.said("Authorization")
		if r.Code != 0 || len(said) != 2 || said[0] != "Bearer "+v.value || !strings.HasPrefix(said[1], "Bearer skep-secret-gh-") {
			t.Errorf("%+v: %q", r, said)
		}
		v.nowhere(r.Out, r.Err)
	})
}

// TestBS7OtherHostsAreUntouched: a host without a binding shows its own certificate, and a
// cell without bindings has no authority and no variables.
func TestBS7OtherHostsAreUntouched(t *testing.T) {
	testlab.Test(t, func(t *testing.T, lab *testlab.Lab) {
		lab.HTTPS("93.184.216.34:443", nil)
		v := secretive(t, lab, bearer)
		const look = `for h in api.test other.test; do curl -sS -o /dev/null -w '%{certs}' --cacert /.skep/trust/ca-bundle.pem https://$h/ 2>&1 | grep -m1 Issuer; done; ls -d /.skep/trust /etc/ssl/certs/ca-certificates.crt 2>/dev/null; env | grep -E 'CA_|CERT|CACERT' | sort; id -u >/dev/null`
		r := v.sh(look)
		for _, want := range []string{"Issuer:CN = Skep cell\n", "Issuer:CN = testlab authority\n", "/.skep/trust\n", "SSL_CERT_FILE=/.skep/trust/ca-bundle.pem", "NODE_EXTRA_CA_CERTS=/.skep/trust/ca.pem"} {
			if !strings.Contains(strings.ReplaceAll(r.Out, "CN=", "CN = "), want) {
				t.Errorf("with a secret %q is missing:\n%s", want, r.Out)
			}
		}
		v.Rules("net: [{name: api.test}, {name: other.test}]\n")
		if r := v.sh(look); strings.Contains(r.Out, "skep") || strings.Contains(r.Out, "CERT") || strings.Contains(r.Out, "Skep") {
			t.Errorf("without a secret there is\n%s", r.Out)
		}
		// A profile's own variable stays.
		v.Rules("secrets: [{name: gh, source: \"file:" + v.file + "\", hosts: [api.test], as: [bearer]}]\nnet: [{name: api.test}]\n")
		v.profile = v.Beside("own.yaml", strings.Replace(read(t, v.profile), "GODEBUG: netdns=go", "GODEBUG: netdns=go, SSL_CERT_FILE: /mine", 1))
		if r := v.sh("echo $SSL_CERT_FILE"); r.Out != "/mine\n" {
			t.Errorf("%q", r.Out)
		}
	})
}

func read(t *testing.T, path string) string {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// TestBS9UnverifiedDestination: one whose certificate is not its name's gets nothing.
func TestBS9UnverifiedDestination(t *testing.T) {
	testlab.Test(t, func(t *testing.T, lab *testlab.Lab) {
		lab.HTTPS("93.184.216.34:443", nil, "wrong.test")
		v := secretive(t, lab, bearer)
		r := v.sh(`curl -s -k -o /dev/null -w '%{http_code} %header{proxy-status}\n' -H "Authorization: Bearer $GH_TOKEN" https://api.test/`)
		if !strings.HasPrefix(r.Out, "502 ") || !strings.Contains(r.Out, "upstream-tls-failed") {
			t.Errorf("%q", r.Out)
		}
		if q := lab.Requests(); len(q) != 0 {
			t.Errorf("a request went upstream: %+v", q)
		}
		v.nowhere(r.Out, r.Err)
	})
}

// TestBS11ReflectedValue: an answer that has the value in it is cut before it passes.
func TestBS11ReflectedValue(t *testing.T) {
	testlab.Test(t, func(t *testing.T, lab *testlab.Lab) {
		lab.HTTPS("93.184.216.34:443", &echoes{})
		v := secretive(t, lab, bearer)
		r := v.sh(`for p in echo echohead; do curl -s -i -H "Authorization: Bearer $GH_TOKEN" https://api.test/$p; echo "ended $?"; done`)
		if strings.Contains(r.Out, "ended 0") || strings.Count(r.Out, "ended") != 2 {
			t.Errorf("%q", r.Out)
		}
		v.refused(v.record(), "api.test:443", "secret-reflected")
		v.nowhere(r.Out, r.Err)
	})
}

// TestBS13Clocks: a client whose clock is five minutes behind or a day ahead believes the
// cell's certificates.
func TestBS13Clocks(t *testing.T) {
	if _, err := exec.LookPath("openssl"); err != nil {
		t.Skip(err)
	}
	testlab.Test(t, func(t *testing.T, lab *testlab.Lab) {
		lab.HTTPS("93.184.216.34:443", nil)
		v := secretive(t, lab, bearer)
		r := v.sh(`now=$(date +%s); for at in $((now - 300)) $((now + 86400)) $((now + 9000000)); do
openssl s_client -connect api.test:443 -servername api.test -verify_hostname api.test -verify_return_error -attime $at </dev/null 2>/dev/null | grep -m1 'Verify return code'; echo; done`)
		lines := strings.Fields(strings.ReplaceAll(r.Out, "Verify return code: 0 (ok)", "ok"))
		if len(lines) < 2 || lines[0] != "ok" || lines[1] != "ok" || strings.Count(r.Out, "0 (ok)") != 2 {
			t.Errorf("%q", r.Out)
		}
	})
}
