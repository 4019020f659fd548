package attack

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"skep.dev/skep/internal/cell/celltest"
	"skep.dev/skep/internal/sys"
	"skep.dev/skep/internal/worker/proto"
)

// activated starts a worker as an activator does, with a listening socket that
// everybody may connect to: the mode of a socket is not the wall that is tried here.
func activated(t *testing.T, dir string) (socket string) {
	t.Helper()
	program, warden := celltest.Program(t, "skep-worker"), celltest.Program(t, "skep-warden")
	uid, gid := celltest.Daemon(t)
	socket = filepath.Join(dir, "worker")
	listener, err := sys.ListenUnix(socket, sys.Seqpacket)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(socket, 0o666); err != nil {
		t.Fatal(err)
	}
	args := []string{"-c", `LISTEN_FDS=1 LISTEN_PID=$$ exec "$0" "$@"`, program, "serve", "--warden", warden, "--box", warden}
	if os.Getuid() == 0 {
		args = append(args, "--user", fmt.Sprintf("skep:%d:%d", uid, gid))
	}
	cmd := exec.Command("/bin/sh", args...)
	cmd.ExtraFiles = []*os.File{listener}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = listener.Close()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return socket
}

// TestWorkerCalledByAnother: the worker answers skepd's user, and nobody else; a
// cell does not find it, also where its socket lies in a grant (L6a).
func TestWorkerCalledByAnother(t *testing.T) {
	c := celltest.New(t)
	dir := c.Make("workers")
	socket := activated(t, dir)
	uid, gid := celltest.Daemon(t)
	as := func(uid, gid int) func(*exec.Cmd) {
		return func(cmd *exec.Cmd) {
			if os.Getuid() == 0 {
				cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
			}
		}
	}
	a := attack{technique: "worker", outside: []string{socket}, inside: []string{socket}, prepare: as(uid, gid)}
	c.ReadOnly(dir)
	a.run(t, c)
	if os.Getuid() != 0 {
		t.Log("another user than the worker's own can be had by root only")
		return
	}
	for _, other := range []int{0, 65534, agentOnHost(t)} {
		a.prepare = as(other, other)
		for _, o := range a.tryOutside(t) {
			if o.verdict != held {
				t.Errorf("user %d, %s: %s", other, o.name, o.why)
			}
		}
	}
}

// TestWorkerRefusesWhatIsWider: whatever skepd might be made to say, the worker
// checks again; a message that is no request is not answered as one (L6).
func TestWorkerRefusesWhatIsWider(t *testing.T) {
	const id = "abcdefghijklmnopqrstuvwxyz"
	cell := func(more string) string {
		return `{"build":{"cell":"` + id + `","argv":["true"],"dir":"/",` + more + `}}`
	}
	for name, body := range map[string]string{
		"an unknown request":   `{"mount":{}}`,
		"an unknown field":     cell(`"uid":0`),
		"a host id":            `{"box":{"uid":0}}`,
		"two at once":          `{"probe":{},"close":{"cell":"` + id + `"}}`,
		"a path for an id":     `{"close":{"cell":"../../../../../../etc"}}`,
		"no descriptors":       cell(`"steps":[]`),
		"a path of the host":   cell(`"steps":[{"op":"bind","path":"/x","from":"/etc/shadow"}]`),
		"a way up":             cell(`"steps":[{"op":"dir","path":"/../x"}]`),
		"bytes after its end":  `{"probe":{}}{"probe":{}}`,
		"no JSON":              "\x00\x01\x02",
		"a wrong type":         `{"close":{"cell":7}}`,
		"nothing":              `{}`,
		"a device of choice":   cell(`"steps":[{"op":"bind","path":"/dev/x","device":"../vda"}]`),
		"a program of its own": `{"box":{"program":"/bin/sh"}}`,
	} {
		t.Run(name, func(t *testing.T) {
			conn := celltest.Worker(t)
			if reply := request(t, conn, body); reply.Error == "" || reply.Pid != 0 {
				t.Errorf("the worker answered %+v", reply)
			}
			if reply := request(t, conn, `{"probe":{}}`); reply.Error != "" || reply.Features == nil {
				t.Errorf("an honest request after it: %+v", reply)
			}
		})
	}
	t.Run("a body that can change", func(t *testing.T) {
		conn := celltest.Worker(t)
		f, err := os.Create(filepath.Join(t.TempDir(), "body"))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = f.Close() }()
		if _, err := f.WriteString(`{"probe":{}}`); err != nil {
			t.Fatal(err)
		}
		if err := sys.SendFDs(conn, []byte(`{"v":1,"id":7}`), f); err != nil {
			t.Fatal(err)
		}
		if reply := answer(t, conn); !strings.Contains(reply.Error, "seal") {
			t.Errorf("the worker answered %+v", reply)
		}
	})
	for name, head := range map[string]string{"another version": `{"v":2,"id":7}`, "no header": "x", "a wider header": `{"v":1,"id":7,"uid":0}`} {
		t.Run(name, func(t *testing.T) {
			conn := celltest.Worker(t)
			f, err := sys.SealedFile("body", []byte(`{"probe":{}}`))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = f.Close() }()
			if err := sys.SendFDs(conn, []byte(head), f); err != nil {
				t.Fatal(err)
			}
			var reply proto.Reply
			if _, _, err := proto.Receive(conn, &reply); err == nil {
				t.Errorf("the worker answered %+v", reply)
			}
		})
	}
}

func request(t *testing.T, conn *os.File, body string) proto.Reply {
	t.Helper()
	f, err := sys.SealedFile("body", []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if err := sys.SendFDs(conn, []byte(`{"v":1,"id":7}`), f); err != nil {
		t.Fatal(err)
	}
	return answer(t, conn)
}

func answer(t *testing.T, conn *os.File) proto.Reply {
	t.Helper()
	var reply proto.Reply
	id, files, err := proto.Receive(conn, &reply)
	if err != nil || id != 7 {
		t.Fatalf("the worker's answer: %d, %v", id, err)
	}
	sys.CloseAll(files)
	return reply
}
