// Package traffic is the load of the network measures: a server, and a client that
// performs orders against it from wherever it was started.
package traffic

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// What a connection asks of the server, by its first byte.
const (
	askSink   = 'u' // and eight bytes: take so many, then answer with one (proxies pass no half-close)
	askSource = 'd' // and eight bytes: how many bytes to send
	askEcho   = 'e' // send each message of messageSize back
	askOnce   = 'o' // send one such message back, and end
)

const messageSize = 64

// refusedPort is one that no policy of the benchmark allows.
const refusedPort = 9

// Serve serves until its listener fails.
func Serve(at string) error {
	l, err := net.Listen("tcp", at)
	if err != nil {
		return err
	}
	fmt.Println("ready")
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer c.Close()
			_ = answerTraffic(c) // the client has the error, too
		}()
	}
}

func answerTraffic(c net.Conn) error {
	ask := make([]byte, 9)
	if _, err := io.ReadFull(c, ask[:1]); err != nil {
		return err
	}
	buf := make([]byte, 256<<10)
	switch ask[0] {
	case askSink:
		if _, err := io.ReadFull(c, ask[1:]); err != nil {
			return err
		}
		for left := int(binary.LittleEndian.Uint64(ask[1:])); left > 0; {
			n, err := c.Read(buf)
			if err != nil {
				return err
			}
			left -= n
		}
		_, err := c.Write(ask[:1])
		return err
	case askSource:
		if _, err := io.ReadFull(c, ask[1:]); err != nil {
			return err
		}
		for left := int(binary.LittleEndian.Uint64(ask[1:])); left > 0; {
			n, err := c.Write(buf[:min(left, len(buf))])
			if err != nil {
				return err
			}
			left -= n
		}
		return nil
	case askEcho:
		for {
			if err := answerOne(c, buf[:messageSize]); err != nil {
				return err
			}
		}
	case askOnce:
		return answerOne(c, buf[:messageSize])
	}
	return fmt.Errorf("unknown request %q", ask[0])
}

func answerOne(c net.Conn, message []byte) error {
	if _, err := io.ReadFull(c, message); err != nil {
		return err
	}
	_, err := c.Write(message)
	return err
}

// Order is what a client is told to do.
type Order struct {
	Op string
	N  int
}

// Outcome is what a client found; Figure and P99 are in the unit of the operation.
type Outcome struct {
	Figure, P99 float64
	Error       string
}

// Obey performs orders, one a line, until the input ends.
func Obey(server string, in io.Reader, out io.Writer) error {
	operations := map[string]func(string, int) (Outcome, error){
		"up": upload, "down": download, "ups": many(upload), "downs": many(download), "kept": kept, "fresh": fresh, "flows": flows, "refused": refused,
	}
	for lines := bufio.NewScanner(in); lines.Scan(); {
		var o Order
		if err := json.Unmarshal(lines.Bytes(), &o); err != nil {
			return err
		}
		found, err := operations[o.Op](server, o.N)
		if err != nil {
			found.Error = err.Error()
		}
		if err := json.NewEncoder(out).Encode(found); err != nil {
			return err
		}
	}
	return nil
}

// upload sends n MiB on one flow, in Gbit/s.
func upload(server string, n int) (Outcome, error) {
	c, err := reach(server)
	if err != nil {
		return Outcome{}, err
	}
	defer c.Close()
	buf := make([]byte, 256<<10)
	ask := binary.LittleEndian.AppendUint64([]byte{askSink}, uint64(n<<20/len(buf)*len(buf)))
	begin := time.Now()
	if _, err := c.Write(ask); err != nil {
		return Outcome{}, err
	}
	for range n << 20 / len(buf) {
		if _, err := c.Write(buf); err != nil {
			return Outcome{}, err
		}
	}
	if _, err := io.ReadFull(c, buf[:1]); err != nil {
		return Outcome{}, err
	}
	return Outcome{Figure: gigabits(n, time.Since(begin))}, nil
}

// download takes n MiB on one flow, in Gbit/s.
func download(server string, n int) (Outcome, error) {
	c, err := reach(server)
	if err != nil {
		return Outcome{}, err
	}
	defer c.Close()
	ask := binary.LittleEndian.AppendUint64([]byte{askSource}, uint64(n)<<20)
	begin := time.Now()
	if _, err := c.Write(ask); err != nil {
		return Outcome{}, err
	}
	buf := make([]byte, 256<<10)
	for left := n << 20; left > 0; {
		got, err := c.Read(buf)
		if err != nil {
			return Outcome{}, err
		}
		left -= got
	}
	return Outcome{Figure: gigabits(n, time.Since(begin))}, nil
}

// many is n MiB on 64 flows at once.
func many(one func(string, int) (Outcome, error)) func(string, int) (Outcome, error) {
	return func(server string, n int) (Outcome, error) {
		const atOnce = 64
		errs := make([]error, atOnce)
		each := max(1, n/atOnce)
		begin := time.Now()
		var all sync.WaitGroup
		for i := range atOnce {
			all.Go(func() { _, errs[i] = one(server, each) })
		}
		all.Wait()
		return Outcome{Figure: gigabits(each*atOnce, time.Since(begin))}, errors.Join(errs...)
	}
}

func gigabits(mebibytes int, took time.Duration) float64 {
	return float64(mebibytes) * (1 << 20) * 8 / took.Seconds() / 1e9
}

// kept makes n requests on one connection, p50 in microseconds.
func kept(server string, n int) (Outcome, error) {
	c, err := reach(server)
	if err != nil {
		return Outcome{}, err
	}
	defer c.Close()
	if _, err := c.Write([]byte{askEcho}); err != nil {
		return Outcome{}, err
	}
	var took []float64
	for range n {
		begin := time.Now()
		if err := echo(c); err != nil {
			return Outcome{}, err
		}
		took = append(took, float64(time.Since(begin).Nanoseconds())/1e3)
	}
	return Outcome{Quantile(took, 0.5), Quantile(took, 0.99), ""}, nil
}

func echo(c net.Conn) error {
	message := make([]byte, messageSize)
	if _, err := c.Write(message); err != nil {
		return err
	}
	_, err := io.ReadFull(c, message)
	return err
}

// fresh makes n flows one after the other, each with one request, p50 and p99 in
// ms until the answer is there.
func fresh(server string, n int) (Outcome, error) {
	var took []float64
	for range n {
		answered, err := once(server)
		if err != nil {
			return Outcome{}, err
		}
		took = append(took, Milliseconds(answered))
	}
	return Outcome{Quantile(took, 0.5), Quantile(took, 0.99), ""}, nil
}

// once makes one flow with one request, and says after how long it was answered.
// The server ends it, so that it alone keeps what is left of the connection for a
// minute: the client's side would run out of ports, on one way earlier than on another.
func once(server string) (answered time.Duration, err error) {
	begin := time.Now()
	c, err := reach(server)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	if _, err := c.Write([]byte{askOnce}); err != nil {
		return 0, err
	}
	if err := echo(c); err != nil {
		return 0, err
	}
	answered = time.Since(begin)
	_, err = io.Copy(io.Discard, c)
	return answered, err
}

// flows makes n flows, 64 at a time, in flows a second.
func flows(server string, n int) (Outcome, error) {
	const atOnce = 64
	var next atomic.Int64
	errs := make([]error, atOnce)
	begin := time.Now()
	var wait sync.WaitGroup
	for i := range atOnce {
		wait.Go(func() {
			for next.Add(1) <= int64(n) && errs[i] == nil {
				_, errs[i] = once(server)
			}
		})
	}
	wait.Wait()
	return Outcome{Figure: float64(n) / time.Since(begin).Seconds()}, errors.Join(errs...)
}

// refused makes n connects that the boundary must refuse, four at a time, in
// refusals a second.
func refused(server string, n int) (Outcome, error) {
	if at, by, tunneled := strings.Cut(server, "@"); tunneled {
		return RefusedTunnels(at, by, n)
	}
	a, err := netip.ParseAddrPort(server)
	if err != nil {
		return Outcome{}, err
	}
	const atOnce = 4
	errs := make([]error, atOnce)
	begin := time.Now()
	var wait sync.WaitGroup
	for i := range atOnce {
		wait.Go(func() { errs[i] = refuseLoop(a.Addr().As4(), n/atOnce) })
	}
	wait.Wait()
	return Outcome{Figure: float64(n) / time.Since(begin).Seconds()}, errors.Join(errs...)
}

// RefusedTunnels is refused over a Unix socket.
func RefusedTunnels(at, by string, n int) (Outcome, error) {
	host, _, err := net.SplitHostPort(at)
	if err != nil {
		return Outcome{}, err
	}
	to := fmt.Sprintf("%s:%d@%s", host, refusedPort, by)
	begin := time.Now()
	for range n {
		c, err := reach(to)
		if err == nil {
			_ = c.Close()
		}
		if !errors.Is(err, errRefused) {
			return Outcome{}, fmt.Errorf("a tunnel that must be refused: %w", err)
		}
	}
	return Outcome{Figure: float64(n) / time.Since(begin).Seconds()}, nil
}

func refuseLoop(addr [4]byte, n int) error {
	for range n {
		s, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		err = syscall.Connect(s, &syscall.SockaddrInet4{Port: refusedPort, Addr: addr})
		_ = syscall.Close(s)
		if !errors.Is(err, syscall.ECONNREFUSED) {
			return fmt.Errorf("a connect that must be refused: %w", err)
		}
	}
	return nil
}
