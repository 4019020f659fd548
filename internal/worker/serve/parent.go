package serve

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"skep.dev/skep/internal/sys"
)

// parent is the resident, single-threaded C program that clones each cell's
// warden (L21a). Starting a program takes longer than building a cell. If it dies,
// the next request finds another; no warden needs it any more.
type parent struct {
	program string
	conn    *os.File
	ended   chan struct{}
}

const (
	wardenMagic   = 0x50454b53
	wardenVersion = 1
	hasStdio      = 1
	allDetached   = 2
)

// wardenRequest and wardenReply are struct request and struct reply of warden/warden.h.
type wardenRequest struct {
	Magic, Version, Flags      uint32
	UIDIn, GIDIn, UIDOut, GOut uint32
	FDs, SpecLen, Pad          uint32
}

type wardenReply struct {
	Magic    uint32
	Error    int32
	Pid, Pad uint32
}

func startParent(program string) (*parent, error) {
	p := &parent{program: program}
	return p, p.start()
}

func (p *parent) start() error {
	ours, theirs, err := sys.SeqpacketPair()
	if err != nil {
		return err
	}
	defer func() { _ = theirs.Close() }()
	cmd := exec.Command(p.program)
	cmd.Args = []string{"skep-warden"} // PID 1 of each cell shows it to the agent: no path of the host (L16)
	cmd.Env = []string{}
	cmd.Dir = "/"
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		_ = ours.Close()
		return fmt.Errorf("start the warden: %w", err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	p.conn, p.ended = ours, ended
	return nil
}

// again replaces a parent that does not answer.
func (p *parent) again() error {
	p.close()
	return p.start()
}

func (r wardenRequest) encode(files int) ([]byte, error) {
	r.Magic, r.Version, r.FDs = wardenMagic, wardenVersion, uint32(files)
	var message bytes.Buffer
	if err := binary.Write(&message, binary.NativeEndian, r); err != nil {
		return nil, fmt.Errorf("encode the build request: %w", err)
	}
	return message.Bytes(), nil
}

// ask asks for one warden; its answer is to be read before the next is asked for.
// The descriptors stay the caller's.
func (p *parent) ask(r wardenRequest, files []*os.File) error {
	message, err := r.encode(len(files))
	if err == nil {
		err = p.send(message, files)
	}
	if err != nil {
		return fmt.Errorf("ask for a warden: %w", err)
	}
	return nil
}

// answer waits for the warden that was asked for.
func (p *parent) answer() (pid int, pidfd *os.File, err error) {
	buf := make([]byte, 64)
	n, got, err := sys.RecvFDs(p.conn, buf, 1)
	var reply wardenReply
	if err == nil {
		err = binary.Read(bytes.NewReader(buf[:n]), binary.NativeEndian, &reply)
	}
	if err != nil || reply.Magic != wardenMagic {
		sys.CloseAll(got)
		// A warden that it had cloned already is never completed, and ends.
		return 0, nil, errors.Join(errGone, errors.New("the warden's parent has gone or answered out of turn"), p.again())
	}
	if reply.Error != 0 || len(got) != 1 {
		sys.CloseAll(got)
		return 0, nil, fmt.Errorf("make the cell's namespaces: %w", syscall.Errno(reply.Error))
	}
	return int(reply.Pid), got[0], nil
}

// send gives a request to a parent that lives. One that cannot be sent to has read
// nothing of it.
func (p *parent) send(message []byte, files []*os.File) error {
	err := sys.SendFDs(p.conn, message, files...)
	if !errors.Is(err, syscall.EPIPE) && !errors.Is(err, syscall.ECONNRESET) {
		return err
	}
	if err := p.again(); err != nil {
		return err
	}
	return sys.SendFDs(p.conn, message, files...)
}

// close lets the parent end; the wardens live on.
func (p *parent) close() {
	_ = p.conn.Close()
	<-p.ended
}
