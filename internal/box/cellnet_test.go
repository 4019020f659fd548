package box

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"

	"skep.dev/skep/internal/name"
	"skep.dev/skep/internal/sys"
)

// The tests of this package run in a user and network namespace of their own:
// there lo may carry addresses that the world calls public, and a cell's
// namespace can be made. TestMain runs the test binary again inside it.
const insideEnv = "SKEP_BOX_TEST_INSIDE"

func TestMain(m *testing.M) {
	if os.Getenv(insideEnv) != "" {
		os.Exit(m.Run())
	}
	c := exec.Command("/proc/self/exe", os.Args[1:]...)
	c.Env = append(os.Environ(), insideEnv+"=1")
	c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
	c.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	err := c.Run()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		os.Exit(exit.ExitCode())
	case err != nil:
		fmt.Fprintln(os.Stderr, "skipped: no user and network namespace can be made here:", err)
	}
}

// public are addresses of the test's own world.
const (
	public4 = "93.184.216.34"
	public6 = "2606:2800:220:1::34"
)

// world gives lo of the outer namespace its addresses.
func world(t *testing.T) {
	t.Helper()
	run(t, "ip", "link", "set", "lo", "up")
	for _, a := range []string{public4 + "/32", public6 + "/128"} {
		_ = exec.Command("ip", "addr", "add", a, "dev", "lo").Run() // there already after the first test
	}
}

func run(t *testing.T, args ...string) {
	t.Helper()
	if _, err := exec.LookPath(args[0]); err != nil {
		t.Skipf("%s is not installed", args[0])
	}
	if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", args, err, out)
	}
}

// cellNet is a cell's network namespace with the warden's own rules, and a
// warden that serves the box's messages. do runs a function in the namespace.
type cellNet struct {
	t       *testing.T
	calls   chan func()
	box     *os.File // the box's end of the warden's socket
	warden  *os.File
	rules   *nftables.Conn
	silent  atomic.Bool // the warden does not answer
	changes atomic.Int64
	inward  atomic.Int64 // connects that the box has asked for

	tables    string // the warden's
	conntrack int    // netlink socket
	asked     atomic.Int64
}

func newCellNet(t *testing.T) *cellNet {
	t.Helper()
	c := &cellNet{t: t, calls: make(chan func())}
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with its namespace
		if err := syscall.Unshare(syscall.CLONE_NEWNET); err != nil {
			t.Errorf("make a network namespace: %v", err)
		}
		for f := range c.calls {
			f()
		}
	}()
	t.Cleanup(func() { close(c.calls) })
	var err error
	if c.box, c.warden, err = sys.SeqpacketPair(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.warden.Close() })
	c.do(c.build)
	go c.serve()
	return c
}

// do runs f on the namespace's thread; sockets that it opens belong there.
func (c *cellNet) do(f func()) {
	done := make(chan struct{})
	c.calls <- func() { defer close(done); f() }
	<-done
}

// build is net_build of warden/net.c, from the same tables.
func (c *cellNet) build() {
	text, err := os.ReadFile("../../warden/tables.h")
	if err != nil {
		c.t.Errorf("the warden's tables: %v", err)
		return
	}
	rt := c.netlink(syscall.NETLINK_ROUTE)
	c.send(rt, table(c.t, string(text), "rt_common"))
	c.send(rt, table(c.t, string(text), "rt_ipv6"))
	nft := c.netlink(syscall.NETLINK_NETFILTER)
	c.send(nft, table(c.t, string(text), "nft_rules"))
	log := c.netlink(syscall.NETLINK_NETFILTER)
	c.send(log, table(c.t, string(text), "nflog_bind"))
	if c.rules, err = nftables.New(nftables.AsLasting()); err != nil {
		c.t.Errorf("reach nftables: %v", err)
		return
	}
	c.tables, c.conntrack = string(text), c.netlink(syscall.NETLINK_NETFILTER)
	c.t.Cleanup(func() { _ = syscall.Close(c.conntrack) })
	for _, timeout := range []string{"nf_conntrack_udp_timeout", "nf_conntrack_udp_timeout_stream"} {
		if err := os.WriteFile("/proc/sys/net/netfilter/"+timeout, []byte("150"), 0); err != nil {
			c.t.Logf("%s: %v", timeout, err)
		}
	}
	files := []*os.File{c.listen("tcp4", "127.0.0.1:65001"), c.listen("tcp6", "[::1]:65001"),
		c.packet("udp4", "127.0.0.1:65002"), c.packet("udp6", "[::1]:65002"), c.packet("udp4", "127.0.0.1:65053"), c.packet("udp6", "[::1]:65053"),
		c.listen("tcp4", "127.0.0.1:65053"), c.listen("tcp6", "[::1]:65053"), os.NewFile(uintptr(log), "log")}
	if err := sys.SendFDs(c.warden, make([]byte, requestSize), files...); err != nil {
		c.t.Errorf("hand over the sockets: %v", err)
	}
	sys.CloseAll(files)
}

func (c *cellNet) netlink(proto int) int {
	fd, err := syscall.Socket(syscall.AF_NETLINK, syscall.SOCK_RAW|syscall.SOCK_CLOEXEC, proto)
	if err != nil {
		c.t.Errorf("netlink socket: %v", err)
	}
	return fd
}

// send sends messages and fails the test at the first that is refused.
func (c *cellNet) send(fd int, b []byte) {
	if err := syscall.Sendto(fd, b, 0, &syscall.SockaddrNetlink{Family: syscall.AF_NETLINK}); err != nil {
		c.t.Errorf("netlink: %v", err)
		return
	}
	tv := syscall.Timeval{Usec: 200000}
	_ = syscall.SetsockoptTimeval(fd, syscall.SOL_SOCKET, syscall.SO_RCVTIMEO, &tv)
	buf := make([]byte, 64<<10)
	want := acks(b)
	for want > 0 {
		n, _, err := syscall.Recvfrom(fd, buf, 0)
		if err != nil {
			c.t.Errorf("netlink: %d acknowledgements missing: %v", want, err)
			return
		}
		messages, _ := syscall.ParseNetlinkMessage(buf[:n])
		for _, m := range messages {
			if m.Header.Type != syscall.NLMSG_ERROR {
				continue
			}
			want--
			if errno := int32(binary.NativeEndian.Uint32(m.Data)); errno != 0 {
				c.t.Errorf("netlink message %d: %v", m.Header.Seq, syscall.Errno(-errno))
			}
		}
	}
}

func acks(b []byte) (n int) {
	for len(b) >= 16 {
		if binary.NativeEndian.Uint16(b[6:])&syscall.NLM_F_ACK != 0 {
			n++
		}
		b = b[min(len(b), int(binary.NativeEndian.Uint32(b)+3)&^3):]
	}
	return n
}

// table reads one array of the warden's tables.
func table(t *testing.T, header, array string) []byte {
	m := regexp.MustCompile(`(?s) ` + array + `\[\d+\] = \{(.*?)\}`).FindStringSubmatch(header)
	if m == nil {
		t.Fatalf("warden/tables.h has no %s", array)
	}
	var out []byte
	for _, w := range strings.FieldsFunc(m[1], func(r rune) bool { return r == ',' || r == ' ' || r == '\n' }) {
		v, err := strconv.ParseUint(w, 0, 8)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, byte(v))
	}
	return out
}

func (c *cellNet) listen(network, at string) *os.File {
	// Plain TCP as the warden's: the original destination of a multipath socket
	// cannot be asked for, and such a flow would be refused.
	var plain net.ListenConfig
	plain.SetMultipathTCP(false)
	l, err := plain.Listen(context.Background(), network, at)
	if err != nil {
		c.t.Errorf("listen: %v", err)
		return nil
	}
	defer l.Close()
	f, err := l.(*net.TCPListener).File()
	if err != nil {
		c.t.Error(err)
	}
	return f
}

func (c *cellNet) packet(network, at string) *os.File {
	p, err := net.ListenPacket(network, at)
	if err != nil {
		c.t.Errorf("listen: %v", err)
		return nil
	}
	defer p.Close()
	f, err := p.(*net.UDPConn).File()
	if err != nil {
		c.t.Error(err)
	}
	return f
}

// serve is gate_serve of warden/net.c.
func (c *cellNet) serve() {
	buf := make([]byte, requestSize)
	for {
		n, _, err := sys.RecvFDs(c.warden, buf, 0)
		if err != nil || n == 0 {
			return
		}
		if c.silent.Load() {
			continue
		}
		reply := make([]byte, answerSize)
		copy(reply, buf[:8])
		switch binary.LittleEndian.Uint32(buf) {
		case opAdd, opRemove:
			c.changes.Add(1)
			if err := c.change(buf); err != nil {
				errno := syscall.EIO
				errors.As(err, &errno)
				binary.LittleEndian.PutUint32(reply[8:], uint32(errno))
			}
		case opOrigin, opForget:
			c.asked.Add(1)
			reply = append(reply, c.flow(buf)...)
		case opCounter:
			binary.LittleEndian.PutUint64(reply[16:], c.refused())
		case opConnect:
			if f := c.connect(buf); f != nil {
				_, _ = sys.SendFDs(c.warden, reply, f), f.Close()
				continue
			}
			binary.LittleEndian.PutUint32(reply[8:], uint32(syscall.ECONNREFUSED))
		}
		if sys.SendFDs(c.warden, reply) != nil {
			return
		}
	}
}

// connect is gate_connect of warden/net.c.
func (c *cellNet) connect(request []byte) (f *os.File) {
	c.inward.Add(1)
	c.do(func() {
		at, port := "127.0.0.1", binary.LittleEndian.Uint16(request[10:])
		if request[8] == 6 {
			at = "::1"
		}
		conn, err := net.Dial("tcp", net.JoinHostPort(at, strconv.Itoa(int(port))))
		if err != nil {
			return
		}
		defer conn.Close()
		if f, err = conn.(*net.TCPConn).File(); err != nil {
			c.t.Error(err)
		}
	})
	return f
}

// flow is gate_flow of warden/net.c, from the same message.
func (c *cellNet) flow(request []byte) []byte {
	m := table(c.t, c.tables, "flow"+strconv.Itoa(int(request[8])))
	hole := func(of string) int {
		at := regexp.MustCompile("flow_" + of + ` = (\d+)`).FindStringSubmatch(c.tables)
		n, _ := strconv.Atoi(at[1])
		return n
	}
	copy(m[hole("address"):], request[16:16+map[byte]int{4: 4, 6: 16}[request[8]]])
	binary.BigEndian.PutUint16(m[hole("port"):], binary.LittleEndian.Uint16(request[10:]))
	if binary.LittleEndian.Uint32(request) == opForget {
		m[hole("type")]++ // from IPCTNL_MSG_CT_GET to _DELETE
		m[hole("flags")] |= syscall.NLM_F_ACK
	}
	buf := make([]byte, maxAnswer-answerSize)
	if err := syscall.Sendto(c.conntrack, m, 0, &syscall.SockaddrNetlink{Family: syscall.AF_NETLINK}); err != nil {
		return nil
	}
	n, _, err := syscall.Recvfrom(c.conntrack, buf, 0)
	if err != nil {
		return nil
	}
	return buf[:n]
}

// leave is the last gate_serve of warden/net.c, and the warden's end.
func (c *cellNet) leave() {
	c.t.Helper()
	last := make([]byte, answerSize)
	binary.LittleEndian.PutUint32(last, opCounter)
	binary.LittleEndian.PutUint64(last[16:], c.refused())
	if err := sys.SendFDs(c.warden, last); err != nil {
		c.t.Error(err)
	}
	conn, err := c.warden.SyscallConn()
	if err == nil {
		err = errors.Join(conn.Control(func(fd uintptr) { err = syscall.Shutdown(int(fd), syscall.SHUT_RDWR) }), err)
	}
	if err != nil {
		c.t.Error(err)
	}
}

func (c *cellNet) change(b []byte) error {
	size := map[byte]int{4: 4, 6: 16}[b[8]]
	first, last := b[16:16+size], b[32:32+size]
	if netip.AddrFrom16([16]byte(b[32:48])) == netip.IPv6Unspecified() {
		last = first
	}
	key := func(addr, port []byte) []byte {
		return append(append(append([]byte(nil), addr...), port[1], port[0]), 0, 0)
	}
	set := &nftables.Set{Table: &nftables.Table{Name: "skep", Family: nftables.TableFamilyINet}, Interval: true, Concatenation: true,
		Name: map[byte]string{6: "tcp", 17: "udp"}[b[9]] + strconv.Itoa(int(b[8]))}
	element := []nftables.SetElement{{Key: key(first, b[10:12]), KeyEnd: key(last, b[12:14])}}
	act := c.rules.SetAddElements
	if binary.LittleEndian.Uint32(b) == opRemove {
		act = c.rules.SetDeleteElements
	}
	if err := act(set, element); err != nil {
		return err
	}
	return c.rules.Flush()
}

func (c *cellNet) refused() uint64 {
	o, err := c.rules.GetObject(&nftables.NamedObj{Table: &nftables.Table{Name: "skep", Family: nftables.TableFamilyINet}, Name: "refused", Type: nftables.ObjTypeCounter})
	if err != nil {
		return 0
	}
	switch b := o.(type) {
	case *nftables.CounterObj:
		return b.Packets
	case *nftables.NamedObj:
		if counter, ok := b.Obj.(*expr.Counter); ok {
			return counter.Packets
		}
	}
	c.t.Errorf("the counter is a %T", o)
	return 0
}

// resolve asks the cell's resolver for a name in one family, again after a
// SERVFAIL as a stub resolver does: on a busy machine the kernel may need more
// than its 20 ms.
func (c *cellNet) resolve(host string, v6 bool) (addr netip.Addr) {
	c.t.Helper()
	for range 10 {
		if addr = c.resolveOnce(host, v6); addr.IsValid() {
			break
		}
	}
	return addr
}

func (c *cellNet) resolveOnce(host string, v6 bool) netip.Addr {
	c.t.Helper()
	return lookup(c.t, c.exchange("udp", netip.AddrPortFrom(name.Resolver4(), 53).String(), host, v6))
}

// exchange sends one query from inside the cell.
func (c *cellNet) exchange(network, server, host string, v6 bool) (reply []byte) {
	c.do(func() {
		conn, err := net.Dial(network, server)
		if err != nil {
			c.t.Logf("dial %s: %v", server, err)
			return
		}
		defer conn.Close()
		_ = conn.SetDeadline(deadline())
		q := query(host, v6)
		if network == "tcp" {
			q = append(binary.BigEndian.AppendUint16(nil, uint16(len(q))), q...)
		}
		if _, err := conn.Write(q); err != nil {
			return
		}
		buf := make([]byte, 512)
		if network == "tcp" {
			_, _ = io.ReadFull(conn, buf[:2])
		}
		n, err := conn.Read(buf)
		if err == nil {
			reply = buf[:n]
		}
	})
	return reply
}

// dial connects from inside the cell.
func (c *cellNet) dial(dst string) (conn net.Conn, err error) {
	c.do(func() { conn, err = net.Dial("tcp", dst) })
	if err == nil {
		_ = conn.SetDeadline(deadline())
		c.t.Cleanup(func() { conn.Close() })
	}
	return conn, err
}
