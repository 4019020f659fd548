package sys

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// UnixKind is the type of a unix socket.
type UnixKind int

// The kinds: a byte stream, and messages that keep their bounds.
const (
	Stream    UnixKind = unix.SOCK_STREAM
	Seqpacket UnixKind = unix.SOCK_SEQPACKET
)

// ErrNotListening says that nothing listens behind a socket's path.
var ErrNotListening = unix.ECONNREFUSED

// ListenUnix makes the socket path, with mode 0600, and listens on it. Something
// that is there already is an error. The caller owns the file, and removes the path.
func ListenUnix(path string, kind UnixKind) (*os.File, error) {
	f, err := unixSocket(path, kind, func(fd int, addr unix.Sockaddr) error {
		// The mode of the socket file comes from that of the socket (unix(7)), so
		// that no moment has a wider one.
		if err := unix.Fchmod(fd, 0o600); err != nil {
			return err
		}
		if err := unix.Bind(fd, addr); err != nil {
			return err
		}
		return unix.Listen(fd, 128)
	})
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	return f, nil
}

// ConnectUnix connects to the socket path. The caller owns the file.
func ConnectUnix(path string, kind UnixKind) (*os.File, error) {
	f, err := unixSocket(path, kind, func(fd int, addr unix.Sockaddr) error {
		return unix.Connect(fd, addr) // on a unix socket it never has to wait but for a full backlog: EAGAIN
	})
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", path, err)
	}
	return f, nil
}

// unixSocket gives op a socket and the address of path. A path longer than an
// address goes through its directory's descriptor.
func unixSocket(path string, kind UnixKind, op func(fd int, addr unix.Sockaddr) error) (*os.File, error) {
	fd, err := unix.Socket(unix.AF_UNIX, int(kind)|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	name := path
	if len(name) >= len(unix.RawSockaddrUnix{}.Path) {
		dir, err := unix.Open(filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			_ = unix.Close(fd)
			return nil, err
		}
		defer func() { _ = unix.Close(dir) }()
		name = "/proc/self/fd/" + strconv.Itoa(dir) + "/" + filepath.Base(path)
	}
	if err := op(fd, &unix.SockaddrUnix{Name: name}); err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), path), nil
}

// AcceptUnix waits for a connection on a listening socket. It ends when the
// listener is closed: os.ErrClosed. The caller owns the file.
func AcceptUnix(listener *os.File) (*os.File, error) {
	conn, err := listener.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("accept on %s: %w", listener.Name(), err)
	}
	var accepted int
	var opErr error
	err = conn.Read(func(fd uintptr) (done bool) {
		for {
			accepted, _, opErr = unix.Accept4(int(fd), unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
			if !errors.Is(opErr, unix.EINTR) && !errors.Is(opErr, unix.ECONNABORTED) {
				return !errors.Is(opErr, unix.EAGAIN)
			}
		}
	})
	if err != nil { // the runtime's own error for a closed file is not os.ErrClosed
		return nil, fmt.Errorf("accept on %s: %w", listener.Name(), os.ErrClosed)
	}
	if opErr != nil {
		return nil, fmt.Errorf("accept on %s: %w", listener.Name(), opErr)
	}
	return os.NewFile(uintptr(accepted), "accepted"), nil
}

// PeerUID is the user of the process that connected a unix socket, as the
// kernel noted it then (SO_PEERCRED, unix(7)).
func PeerUID(conn syscall.Conn) (uint32, error) {
	cred, err := peerOf(conn)
	if err != nil {
		return 0, err
	}
	return cred.Uid, nil
}

// PeerPID is the process at the other end of a unix socket: who connected, or who
// listens; 0 for one in no pid namespace of ours. To name it to a person, not to decide
// by: a number is used again.
func PeerPID(conn syscall.Conn) (int, error) {
	cred, err := peerOf(conn)
	if err != nil {
		return 0, err
	}
	return int(cred.Pid), nil
}

func peerOf(conn syscall.Conn) (*unix.Ucred, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	var cred *unix.Ucred
	var opErr error
	err = raw.Control(func(fd uintptr) {
		cred, opErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err := errors.Join(err, opErr); err != nil {
		return nil, fmt.Errorf("read peer credentials: %w", err)
	}
	return cred, nil
}

// PathOf is where the object of an open file stands now, as this process would
// name it. It opens nothing. ok is false for a removed object and for one that
// has no path here.
func PathOf(f *os.File) (path string, ok bool) {
	fd, err := rawFD(f)
	if err != nil {
		return "", false
	}
	path, err = os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
	if err != nil || !filepath.IsAbs(path) {
		return "", false
	}
	return path, filepath.Clean(path) == path
}

// Duplicate returns a second descriptor of f's open file, close-on-exec. The
// caller owns it.
func Duplicate(f *os.File) (*os.File, error) {
	fd, err := rawFD(f)
	if err != nil {
		return nil, fmt.Errorf("duplicate %s: %w", f.Name(), err)
	}
	dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("duplicate %s: %w", f.Name(), err)
	}
	return os.NewFile(uintptr(dup), f.Name()), nil
}

// IsTimeout reports whether err is that of a deadline of a file or socket.
func IsTimeout(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }

// OpenPlace opens the object of a name as a mere place: it can be stated, passed
// and mounted, not read (O_PATH, open(2)). A symlink is opened, not followed. The
// caller owns the file.
func OpenPlace(name string) (*os.File, error) {
	fd, err := unix.Open(name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	return os.NewFile(uintptr(fd), name), nil
}

// EndReads lets what a socket has received be read, and then its end (shutdown(2), SHUT_RD).
func EndReads(f *os.File) error {
	return at(f, "end the reads of", f.Name(), func(fd int) error { return unix.Shutdown(fd, unix.SHUT_RD) })
}
