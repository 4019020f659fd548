package proto

import (
	"errors"
	"os"
	"strings"
	"testing"

	"skep.dev/skep/internal/sys"
)

const someID = "abcdefghijklmnopqrstuvwxyz"

func build(steps ...Step) *Request {
	return &Request{Build: &Build{Cell: someID, Hostname: "h", Argv: []string{"true"}, Dir: "/", Steps: steps}}
}

// Every way in which a request can be wider than its form is refused.
func TestRequestsAreClosed(t *testing.T) {
	for name, c := range map[string]struct {
		request *Request
		files   int
		want    string
	}{
		"nothing":           {&Request{}, 0, "one of prepare"},
		"two at once":       {&Request{Box: &Box{}, Probe: &Probe{}}, 2, "one of prepare"},
		"an id as a path":   {&Request{Close: &Close{Cell: "../../../../../../etc/aaaa"}}, 0, "no cell id"},
		"a count of a path": {&Request{Count: &Count{Cell: ".."}}, 0, "no cell id"},
		"no arguments":      {&Request{Build: &Build{Cell: someID, Dir: "/"}}, 4, "missing or too many"},
		"a relative place":  {&Request{Build: &Build{Cell: someID, Argv: []string{"x"}, Dir: "tmp"}}, 4, "working directory"},
		"a zero byte":       {&Request{Build: &Build{Cell: someID, Argv: []string{"a\x00b"}, Dir: "/"}}, 4, "zero byte"},
		"a negative limit":  {&Request{Build: &Build{Cell: someID, Argv: []string{"x"}, Dir: "/", Limits: Limits{Pids: -1}}}, 4, "negative"},
		"an unknown step":   {build(Step{Op: "exec", Path: "/x"}), 4, "unknown operation"},
		"the root itself":   {build(Step{Op: OpTmpfs, Path: "/"}), 4, "below the root"},
		"a way up":          {build(Step{Op: OpDir, Path: "/a/../b"}), 4, "clean absolute"},
		"a device":          {build(Step{Op: "device", Path: "/dev/sda"}), 5, "unknown operation"},
		"the devices":       {build(Step{Op: OpTmpfs, Path: "/dev"}), 4, "the worker's"},
		"a /proc":           {build(Step{Op: OpBind, Path: "/proc"}), 5, "the worker's"},
		"a part of /proc":   {build(Step{Op: OpBind, Path: "/proc/sys"}), 5, "the worker's"},
		"a setuid file":     {build(Step{Op: OpFile, Path: "/x", Mode: 0o4755}), 4, "more than permissions"},
		"an absent grant":   {build(Step{Op: OpBind, Path: "/x", FD: 3}), 5, "did not come"},
		"half an overlay":   {build(Step{Op: OpOverlay, Path: "/x"}), 5, "did not come"},
	} {
		t.Run(name, func(t *testing.T) {
			err := c.request.Check(c.files)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
	if err := build(Step{Op: OpBind, Path: "/x"}).Check(5); err != nil {
		t.Errorf("a whole request was refused: %v", err)
	}
}

func TestDescriptorsMustBelong(t *testing.T) {
	for _, r := range []*Request{
		build(Step{Op: OpBind, Path: "/x"}), {Box: &Box{}}, {Layer: &Layer{Grants: []LayerGrant{{}}}}, {Unseen: &Unseen{}}, {Probe: &Probe{}},
	} {
		right := 0
		for n := range 12 {
			if r.Check(n) == nil {
				right++
			}
		}
		if right != 1 {
			t.Errorf("%+v is accepted with %d different numbers of descriptors", r, right)
		}
	}
}

// A body that can change, has an unknown field, or is followed by more is an
// answerable error; another version ends the connection.
func TestMessagesAreStrict(t *testing.T) {
	a, b, err := sys.SeqpacketPair()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = a.Close(), b.Close() }()
	sealed := func(text string) *os.File {
		f, err := sys.SealedFile("body", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() })
		return f
	}
	open, err := os.CreateTemp(t.TempDir(), "body")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := open.WriteString(`{"probe":{}}`); err != nil {
		t.Fatal(err)
	}
	for text, file := range map[string]*os.File{
		"unknown":  sealed(`{"probe":{},"shell":"sh"}`),
		"trailing": sealed(`{"probe":{}} {}`),
		"open":     open,
	} {
		if err := sys.SendFDs(a, []byte(`{"v":1,"id":7}`), file); err != nil {
			t.Fatal(err)
		}
		var r Request
		id, _, err := Receive(b, &r)
		var body *BodyError
		if id != 7 || !errors.As(err, &body) {
			t.Errorf("%s: id %d, %v", text, id, err)
		}
	}
	if err := sys.SendFDs(a, []byte(`{"v":2,"id":7}`), sealed(`{}`)); err != nil {
		t.Fatal(err)
	}
	var body *BodyError
	if _, _, err := Receive(b, &Request{}); err == nil || errors.As(err, &body) {
		t.Errorf("version 2 was understood: %v", err)
	}
}

func FuzzDecodeRequest(f *testing.F) {
	f.Add([]byte(`{"build":{"cell":"abcdefghijklmnopqrstuvwxyz","hostname":"h","argv":["true"],"env":[],"dir":"/","steps":[{"op":"bind","path":"/x"}],"limits":{}}}`), 5)
	f.Add([]byte(`{"layer":{"grants":[{"plain":true}]}}`), 2)
	f.Fuzz(func(t *testing.T, body []byte, files int) {
		var r Request
		if Decode(body, &r) != nil {
			return
		}
		if r.Check(files) == nil && r.Build != nil {
			for _, s := range r.Build.Steps {
				if s.Op == OpBind && s.FD >= files-4 {
					t.Fatalf("a step reaches descriptor %d of %d", s.FD, files)
				}
			}
		}
	})
}
