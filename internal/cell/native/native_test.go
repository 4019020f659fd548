package native_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"skep.dev/skep/internal/cell"
	"skep.dev/skep/internal/cell/native"
	"skep.dev/skep/internal/sys"
)

// daemonID is the account that root's worker works for in these tests: it needs a
// range in /etc/subuid, and owns nothing.
const daemonID = 998

// programs are built once for the package's tests.
func programs(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("SKEP_BIN")
	if dir == "" {
		dir = filepath.Join("..", "..", "..", "bin")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{"skep-worker", "skep-warden"} {
		if _, err := os.Stat(filepath.Join(dir, p)); err != nil {
			t.Skipf("%s is not built: run make build", p)
		}
	}
	return dir
}

func driver(t *testing.T) *native.Driver {
	t.Helper()
	bin := programs(t)
	ours, theirs, err := sys.SeqpacketPair()
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"serve", "--warden", filepath.Join(bin, "skep-warden"), "--box", filepath.Join(bin, "skep-box")}
	if os.Getuid() == 0 {
		args = append(args, "--user", fmt.Sprintf("skep:%d:%d", daemonID, daemonID))
	}
	cmd := exec.Command(filepath.Join(bin, "skep-worker"), args...)
	cmd.ExtraFiles, cmd.Stderr = []*os.File{theirs}, os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = theirs.Close()
	d := native.New(ours)
	t.Cleanup(func() {
		_ = d.Close()
		_ = cmd.Wait()
	})
	return d
}

type harness struct {
	spec   *cell.Spec
	client net.Conn
	box    *os.File
}

func path(t *testing.T, p string) *os.File {
	t.Helper()
	f, err := sys.OpenPath(p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func newHarness(t *testing.T, argv ...string) *harness {
	t.Helper()
	dir := t.TempDir()
	for _, d := range []string{"home", "tmp", "0/upper", "0/work", "work"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if os.Getuid() == 0 { // a layer belongs to the daemon's user on the disk
		for _, d := range []string{"home", "tmp", "0/upper", "0/work"} {
			if err := os.Chown(filepath.Join(dir, d), daemonID, daemonID); err != nil {
				t.Fatal(err)
			}
		}
	}
	log, err := os.OpenFile(filepath.Join(dir, "log"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	control, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: filepath.Join(dir, "w"), Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	listening, err := control.File()
	if err != nil {
		t.Fatal(err)
	}
	boxEnd, wardenEnd, err := sys.SeqpacketPair()
	if err != nil {
		t.Fatal(err)
	}
	stdioEnd, clientEnd, err := sys.StreamPair()
	if err != nil {
		t.Fatal(err)
	}
	client, err := net.FileConn(clientEnd)
	if err != nil {
		t.Fatal(err)
	}
	_ = clientEnd.Close()
	spec := &cell.Spec{
		ID: "abcdefghijklmnopqrstuvwxyz", Hostname: "cell", Argv: argv,
		Env: []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/home/agent"}, Dir: "/home/agent",
		Home: path(t, filepath.Join(dir, "home")), HomePath: "/home/agent", Tmp: path(t, filepath.Join(dir, "tmp")),
		ShmSize: 1 << 20, Box: wardenEnd, Control: listening, Log: log, Stdio: stdioEnd,
		Files: []cell.File{{Path: "/etc/hostname", Content: []byte("cell\n")}},
	}
	for _, p := range []string{"/usr", "/bin", "/lib", "/lib64"} {
		spec.Grants = append(spec.Grants, cell.Grant{Path: p, Object: path(t, p), Dir: true})
	}
	spec.Grants = append(spec.Grants, cell.Grant{
		Path: filepath.Join(dir, "work"), Object: path(t, filepath.Join(dir, "work")), Dir: true, Writable: true,
		Layer: path(t, filepath.Join(dir, "0")),
	})
	t.Cleanup(func() {
		for _, f := range []*os.File{log, listening, boxEnd, wardenEnd, stdioEnd} {
			_ = f.Close()
		}
		_ = client.Close()
		_ = control.Close()
	})
	return &harness{spec: spec, client: client, box: boxEnd}
}

// output reads the frames until the warden closes them.
func (h *harness) output(t *testing.T) string {
	t.Helper()
	_ = h.spec.Stdio.Close()
	var out strings.Builder
	for {
		head := make([]byte, 5)
		if _, err := io.ReadFull(h.client, head); err != nil {
			return out.String()
		}
		n := int(head[1]) | int(head[2])<<8 | int(head[3])<<16
		body := make([]byte, n)
		if _, err := io.ReadFull(h.client, body); err != nil {
			t.Fatal(err)
		}
		out.Write(body)
	}
}

func (h *harness) run(t *testing.T) (string, cell.Result) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	r, err := driver(t).Start(ctx, h.spec)
	if err != nil {
		t.Fatal(err)
	}
	out := h.output(t)
	<-r.Done()
	return out, r.Result()
}

func TestAgentRunsAndItsStatusComesBack(t *testing.T) {
	h := newHarness(t, "bash", "-c", "id; cat /etc/hostname; ls -la / /dev; grep -i cap /proc/self/status; cat /proc/mounts; cd $0; echo hi > f; ls -la; cat f; grep . /proc/self/uid_map; touch /usr/x; exec 3<>/dev/tcp/100.64.0.1/80; exit 7")
	h.spec.Argv = append(h.spec.Argv, h.spec.Grants[len(h.spec.Grants)-1].Path)
	out, result := h.run(t)
	t.Log(out)
	if result.ExitCode != 7 || result.Failed != nil {
		t.Fatalf("result %+v, want 7", result)
	}
}
