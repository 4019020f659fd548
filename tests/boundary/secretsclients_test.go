package boundary

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"skep.dev/skep/internal/testlab"
)

// client is a program that speaks https by itself: what it is, and a script that asks
// https://api.test/NAME with $GH_TOKEN as bearer.
type client struct{ name, program, script string }

func clients() []client {
	const java = `mkdir -p $HOME/j; cat > $HOME/j/A.java <<'X'
import java.net.*; public class A { public static void main(String[] a) throws Exception {
HttpURLConnection c = (HttpURLConnection) new URL(a[0]).openConnection(); c.setRequestProperty("Authorization", "Bearer " + System.getenv("GH_TOKEN"));
System.out.print(new String(c.getInputStream().readAllBytes())); } }
X
java $HOME/j/A.java https://api.test/java`
	return []client{
		{"curl", "curl", `curl -sSf -H "Authorization: Bearer $GH_TOKEN" https://api.test/curl`},
		{"git", "git", `git -c "http.extraHeader=Authorization: Bearer $GH_TOKEN" ls-remote https://api.test/git`},
		{"wget", "wget", `wget -qO- --header="Authorization: Bearer $GH_TOKEN" https://api.test/wget`},
		{"openssl", "openssl", `printf 'GET /openssl HTTP/1.1\r\nHost: api.test\r\nAuthorization: Bearer %s\r\nConnection: close\r\n\r\n' "$GH_TOKEN" | openssl s_client -quiet -verify_return_error -verify_hostname api.test -connect api.test:443 2>/dev/null`},
		{"python-urllib", "/usr/bin/python3", `/usr/bin/python3 -c 'import os,urllib.request as u; print(u.urlopen(u.Request("https://api.test/python-urllib",headers={"Authorization":"Bearer "+os.environ["GH_TOKEN"]})).read().decode())'`},
		{"python-requests", "/usr/bin/python3", `/usr/bin/python3 -c 'import requests' 2>/dev/null || exit 77; /usr/bin/python3 -c 'import os,requests as r; a=r.get("https://api.test/python-requests",headers={"Authorization":"Bearer "+os.environ["GH_TOKEN"]}); a.raise_for_status(); print(a.text)'`},
		{"node", "node", `node -e 'fetch("https://api.test/node",{headers:{Authorization:"Bearer "+process.env.GH_TOKEN}}).then(r=>r.text()).then(console.log,e=>{console.error(e);process.exit(1)})'`},
		{"java", "java", java},
		{"go", "", `"$PROBER" fetch https://api.test/go`},
		{"cargo", "cargo", `exit 77`},
		{"deno", "deno", `echo 'console.log(await (await fetch("https://api.test/deno",{headers:{Authorization:"Bearer "+Deno.env.get("GH_TOKEN")}})).text())' > $HOME/d.js; deno run -A $HOME/d.js`},
	}
}

// fetch is the Go client of the matrix, the test itself.
func fetch(url string) int {
	q, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return 2
	}
	q.Header.Set("Authorization", "Bearer "+os.Getenv("GH_TOKEN"))
	a, err := http.DefaultClient.Do(q)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = a.Body.Close() }()
	_, _ = io.Copy(os.Stdout, a.Body)
	return 0
}

// TestBS12Clients: each client that this machine has believes the cell's authority without
// being told, and the destination gets the value. The matrix is printed (N12).
func TestBS12Clients(t *testing.T) {
	testlab.Test(t, func(t *testing.T, lab *testlab.Lab) {
		lab.HTTPS("93.184.216.34:443", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasPrefix(r.URL.Path, "/git/info/refs") {
				w.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
				_, _ = io.WriteString(w, "001e# service=git-upload-pack\n0000004f0123456789012345678901234567890123456789 refs/heads/main\x00agent=git/served00000")
				return
			}
			_, _ = io.WriteString(w, "served")
		}))
		v := secretive(t, lab, bearer)
		var matrix strings.Builder
		for _, c := range clients() {
			result := v.client(c)
			fmt.Fprintf(&matrix, "\n| %-15s | %-40s |", c.name, result)
			if strings.HasPrefix(result, "FAILS") {
				t.Errorf("%s: %s", c.name, result)
			}
		}
		t.Log(matrix.String())
		fmt.Println(matrix.String())
		v.nowhere()
	})
}

// client is what becomes of one.
func (v *vault) client(c client) string {
	v.t.Helper()
	extra := ""
	if c.program != "" {
		path, err := exec.LookPath(c.program)
		if err != nil {
			return "not on this machine"
		}
		if path, err = filepath.EvalSymlinks(path); err != nil || !strings.HasPrefix(path, "/usr/") && !strings.HasPrefix(path, "/bin/") {
			return "not where a cell of this test sees it"
		}
		if c.program == "java" { // Debian has its configuration in /etc
			for _, dir := range []string{"/etc/java-17-openjdk", "/etc/ssl", "/etc/alternatives"} {
				if _, err := os.Stat(dir); err == nil {
					extra += "  - {path: " + dir + ", rights: ro}\n"
				}
			}
		}
	}
	before := len(v.lab.Requests())
	plain := v.profile
	defer func() { v.profile = plain }()
	v.profile = v.Beside("client.yaml", strings.Replace(read(v.t, plain), "paths:\n", "paths:\n"+extra, 1))
	r := v.sh("PROBER=" + v.prober + "\n" + c.script)
	if r.Code == 77 {
		return "needs more than this machine has"
	}
	for _, q := range v.lab.Requests()[before:] {
		if q.Header.Get("Authorization") == "Bearer "+v.value {
			if r.Code == 0 || c.name == "git" {
				return "trusts, value arrives"
			}
		}
	}
	return fmt.Sprintf("FAILS with %d: %.200s", r.Code, r.Err+r.Out)
}
