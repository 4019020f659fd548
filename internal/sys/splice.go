package sys

import (
	"errors"
	"fmt"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// What a relay loop needs: descriptors of its own, one epoll set, and calls that
// never wait. ErrAgain says that a call would have to.
const ErrAgain = unix.EAGAIN

// DuplicateSocket makes a second descriptor of a connection's socket, which the Go
// runtime does not poll. It stays non-blocking. The caller closes it.
func DuplicateSocket(c syscall.Conn) (int, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return -1, fmt.Errorf("duplicate a socket: %w", err)
	}
	fd := -1
	var failed error
	err = raw.Control(func(old uintptr) { fd, failed = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 0) })
	if err = errors.Join(err, failed); err != nil {
		return -1, fmt.Errorf("duplicate a socket: %w", err)
	}
	return fd, nil
}

// Poller is an edge-triggered epoll set.
type Poller struct{ fd int }

// Event is what happened to the descriptor that was added with ID.
type Event struct {
	ID                       uint64
	Readable, Writable, Last bool // Last: the peer sends no more, or the connection broke
}

// NewPoller makes an empty set.
func NewPoller() (*Poller, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make an epoll set: %w", err)
	}
	return &Poller{fd}, nil
}

// Add watches a descriptor until it is closed. Its state is reported at once.
func (p *Poller) Add(fd int, id uint64) error {
	e := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLRDHUP | unix.EPOLLET, Fd: int32(id), Pad: int32(id >> 32)}
	if err := unix.EpollCtl(p.fd, unix.EPOLL_CTL_ADD, fd, &e); err != nil {
		return fmt.Errorf("watch a socket: %w", err)
	}
	return nil
}

// Remove ends the watch of a descriptor whose socket has others, too.
func (p *Poller) Remove(fd int) { _ = unix.EpollCtl(p.fd, unix.EPOLL_CTL_DEL, fd, nil) }

// Now appends what has happened to events.
func (p *Poller) Now(events []Event) ([]Event, error) {
	var found [64]unix.EpollEvent
	n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(p.fd), uintptr(unsafe.Pointer(&found)), uintptr(len(found)), 0, 0, 0)
	return known(events, found[:], int(n), errno)
}

// Soon is as Now, but waits a millisecond for it. The Go runtime takes the thread
// for busy meanwhile: waking costs it nothing, and a collection waits as long.
func (p *Poller) Soon(events []Event) ([]Event, error) {
	var found [64]unix.EpollEvent
	n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(p.fd), uintptr(unsafe.Pointer(&found)), uintptr(len(found)), 1, 0, 0)
	return known(events, found[:], int(n), errno)
}

// Wait waits until something happens, and appends it to events.
func (p *Poller) Wait(events []Event) ([]Event, error) {
	var found [64]unix.EpollEvent
	const forever = ^uintptr(0)
	n, _, errno := unix.Syscall6(unix.SYS_EPOLL_PWAIT, uintptr(p.fd), uintptr(unsafe.Pointer(&found)), uintptr(len(found)), forever, 0, 0)
	return known(events, found[:], int(n), errno)
}

func known(events []Event, found []unix.EpollEvent, n int, errno unix.Errno) ([]Event, error) {
	switch errno {
	case 0:
	case unix.EINTR:
		return events, nil
	default:
		return events, fmt.Errorf("wait for sockets: %w", errno)
	}
	for _, e := range found[:n] {
		events = append(events, Event{
			ID:       uint64(uint32(e.Fd)) | uint64(uint32(e.Pad))<<32,
			Readable: e.Events&(unix.EPOLLIN|unix.EPOLLRDHUP|unix.EPOLLHUP|unix.EPOLLERR) != 0,
			Writable: e.Events&(unix.EPOLLOUT|unix.EPOLLHUP|unix.EPOLLERR) != 0,
			Last:     e.Events&(unix.EPOLLRDHUP|unix.EPOLLHUP|unix.EPOLLERR) != 0,
		})
	}
	return events, nil
}

// Receive reads from a socket without waiting; 0 is the end. The Go runtime is not
// told of the call, which is short.
func Receive(fd int, b []byte) (int, error) {
	for {
		n, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), unix.MSG_DONTWAIT, 0, 0)
		if errno == 0 {
			return int(n), nil
		}
		if errno != unix.EINTR {
			return 0, errno
		}
	}
}

// Send writes to a socket without waiting and without a signal.
func Send(fd int, b []byte) (int, error) {
	for {
		n, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0, 0)
		if errno == 0 {
			return int(n), nil
		}
		if errno != unix.EINTR {
			return 0, errno
		}
	}
}

// Splice moves at most n bytes between a pipe and a socket without waiting and,
// where the kernel can, without a copy; 0 is the end.
func Splice(from, to, n int) (int, error) {
	for {
		m, _, errno := unix.RawSyscall6(unix.SYS_SPLICE, uintptr(from), 0, uintptr(to), 0, uintptr(n), unix.SPLICE_F_NONBLOCK|unix.SPLICE_F_MOVE)
		if errno == 0 {
			return int(m), nil
		}
		if errno != unix.EINTR {
			return 0, errno
		}
	}
}

// SplicePipe makes a pipe for Splice: its reading and its writing end. It holds
// size bytes if the kernel grants that, and less if not.
func SplicePipe(size int) (r, w int, err error) {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return -1, -1, fmt.Errorf("make a pipe: %w", err)
	}
	_, _ = unix.FcntlInt(uintptr(p[0]), unix.F_SETPIPE_SZ, size)
	return p[0], p[1], nil
}

// EndWrites passes an end of file to a socket's peer.
func EndWrites(fd int) error { return unix.Shutdown(fd, unix.SHUT_WR) }

// CloseFD closes a raw descriptor. With reset, the last close of the socket resets
// its connection.
func CloseFD(fd int, reset bool) {
	if reset {
		_ = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1, Linger: 0})
	}
	_ = syscall.Close(fd)
}
