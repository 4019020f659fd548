package sys

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// MaxPassedFDs bounds the descriptors in one message. The kernel's own bound
// is SCM_MAX_FD (253, unix(7)); the build of a cell with many grants comes near it.
const MaxPassedFDs = 250

// ErrTruncated says that a message, or the descriptors beside it, did not fit
// what the receiver offered. The descriptors that did arrive are closed.
var ErrTruncated = errors.New("message or descriptors truncated")

// SeqpacketPair returns the two ends of a unix SOCK_SEQPACKET socket pair,
// both close-on-exec and nonblocking (so that Close wakes a reader). The caller
// owns both.
func SeqpacketPair() (a, b *os.File, err error) {
	return socketPair(unix.SOCK_SEQPACKET, "seqpacket")
}

// StreamPair returns the two ends of a unix SOCK_STREAM socket pair, both
// close-on-exec and blocking. The caller owns both.
func StreamPair() (a, b *os.File, err error) {
	return socketPair(unix.SOCK_STREAM, "stream")
}

func socketPair(kind int, name string) (a, b *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("make %s socket pair: %w", name, err)
	}
	return os.NewFile(uintptr(fds[0]), name), os.NewFile(uintptr(fds[1]), name), nil
}

// Inherited wraps a descriptor that this process was started with, and makes it
// close-on-exec and nonblocking first. The file owns the descriptor.
func Inherited(fd int, name string) (*os.File, error) {
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, unix.FD_CLOEXEC); err != nil {
		return nil, fmt.Errorf("inherit descriptor %d as %s: %w", fd, name, err)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, fmt.Errorf("make descriptor %d nonblocking: %w", fd, err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

// SendFDs sends one message with descriptors on the unix socket sock, blocking
// until the kernel took it. The files stay the caller's: the receiver gets
// duplicates. On SOCK_SEQPACKET the message arrives whole; it must not be empty
// (an empty message is told from end of file by nothing).
func SendFDs(sock *os.File, msg []byte, files ...*os.File) error {
	if len(msg) == 0 {
		return errors.New("send descriptors: empty message")
	}
	if len(files) > MaxPassedFDs {
		return fmt.Errorf("send descriptors: %d is more than %d", len(files), MaxPassedFDs)
	}
	fds := make([]int, 0, len(files))
	for _, f := range files {
		fd, err := rawFD(f)
		if err != nil {
			return fmt.Errorf("send descriptor of %s: %w", f.Name(), err)
		}
		fds = append(fds, fd)
	}
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	err := onFD(sock, false, func(fd int) error {
		return unix.Sendmsg(fd, msg, oob, nil, unix.MSG_NOSIGNAL)
	})
	runtime.KeepAlive(files)
	if err != nil {
		return fmt.Errorf("send message of %d bytes with %d descriptors: %w", len(msg), len(files), err)
	}
	return nil
}

// RecvFDs receives one message of at most len(buf) bytes and at most max
// descriptors from the unix socket sock. The files are the caller's, are
// close-on-exec from the first moment (MSG_CMSG_CLOEXEC), and n is 0 with no
// error at end of file. A message that does not fit is ErrTruncated. What a peer sent
// before it ended is received also where it left a message of ours unread, of which
// the kernel tells first.
func RecvFDs(sock *os.File, buf []byte, max int) (n int, files []*os.File, err error) {
	if max < 0 || max > MaxPassedFDs {
		return 0, nil, fmt.Errorf("receive descriptors: %d is not within 0..%d", max, MaxPassedFDs)
	}
	// Room for the full bound, whatever max is: with less, the kernel would
	// cut silently into the flags; with it we see and close what is too much.
	oob := make([]byte, unix.CmsgSpace(MaxPassedFDs*4))
	var oobn, flags int
	err = onFD(sock, true, func(fd int) error {
		var err error
		n, oobn, flags, _, err = unix.Recvmsg(fd, buf, oob, unix.MSG_CMSG_CLOEXEC)
		if err == unix.ECONNRESET { // told once
			n, oobn, flags, _, err = unix.Recvmsg(fd, buf, oob, unix.MSG_CMSG_CLOEXEC)
		}
		return err
	})
	if err != nil {
		return 0, nil, fmt.Errorf("receive message: %w", err)
	}
	files, err = filesOf(oob[:oobn])
	if err == nil && (flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 || len(files) > max) {
		err = fmt.Errorf("receive message: %w", ErrTruncated)
	}
	if err != nil {
		CloseAll(files)
		return 0, nil, err
	}
	return n, files, nil
}

// CloseAll closes every file of files; for the error paths of a receiver.
func CloseAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}

// filesOf wraps every descriptor of a control buffer, so that none is lost even
// when a later part of it cannot be read.
func filesOf(oob []byte) ([]*os.File, error) {
	if len(oob) == 0 {
		return nil, nil
	}
	var files []*os.File
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, fmt.Errorf("parse control message: %w", err)
	}
	for i := range messages {
		if messages[i].Header.Type != unix.SCM_RIGHTS || messages[i].Header.Level != unix.SOL_SOCKET {
			continue // credentials that nobody asked for
		}
		fds, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			return files, fmt.Errorf("parse passed descriptors: %w", err)
		}
		for _, fd := range fds {
			files = append(files, os.NewFile(uintptr(fd), "passed"))
		}
	}
	return files, nil
}

// rawFD reads the number of f without changing its blocking mode, which
// (*os.File).Fd would. Valid while f is open.
func rawFD(f *os.File) (fd int, err error) {
	conn, err := f.SyscallConn()
	if err != nil {
		return -1, err
	}
	err = conn.Control(func(n uintptr) { fd = int(n) })
	return fd, err
}

// onFD runs op on f's descriptor, again after EINTR, and after EAGAIN once the
// poller says that f is ready. A blocking descriptor never says EAGAIN.
func onFD(f *os.File, read bool, op func(fd int) error) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var opErr error
	step := func(n uintptr) (done bool) {
		for {
			opErr = op(int(n))
			if !errors.Is(opErr, unix.EINTR) {
				return !errors.Is(opErr, unix.EAGAIN)
			}
		}
	}
	if read {
		err = conn.Read(step)
	} else {
		err = conn.Write(step)
	}
	if err != nil {
		return err
	}
	return opErr
}
