package box

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync"
	"syscall"

	"skep.dev/skep/internal/box/pause"
	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/name"
	"skep.dev/skep/internal/right"
	"skep.dev/skep/internal/sys"
)

// The warden's messages about the early gate (B15), little endian. A request:
//
//	u32 op, u32 id, u8 family, u8 transport (or a set by its number), u16 first port, u16 last port, u16 0,
//	16 bytes first address, 16 bytes last address (zero: the same), 8 bytes zero
//
// An answer: u32 op, u32 id, i32 errno, u32 0, u64 value; of opCounter, opOrigin and opForget
// the kernel's own answer behind it, and then there is no value (netlink.go); with one of
// opConnect comes its socket. The warden's last one has id 0: the counter, when the cell's processes are gone.
const (
	opAdd = iota + 1
	opRemove
	opCounter
	opReady
	opOrigin // where datagrams from first address and first port were going
	opForget // and that the kernel shall forget it
	opConnect

	requestSize = 56
	answerSize  = 24
	maxAnswer   = answerSize + 1000
)

// heirsNumbers is more than a box asks before it serves.
const heirsNumbers = 1 << 20

// ErrWardenGone says that the warden's end of the socket is closed: so a box ends with its cell.
var ErrWardenGone = errors.New("the cell's warden is gone")

// kernel is the early gate of the cell's namespace, reached through its warden.
type kernel struct {
	sock *os.File

	mu      sync.Mutex
	next    uint32
	waiting map[uint32]chan answer // nil after the end, or the warden's last word
	held    chan struct{}          // while nothing may be asked: closed when it may
	quiet   chan struct{}          // told when nothing waits any more
	last    *answer                // the counter's last value, once the warden has told it
	ended   chan struct{}          // closed after the last word, or when run has returned without
}

type answer struct {
	errno  syscall.Errno
	value  uint64
	kernel []byte   // its own answer to opOrigin
	socket *os.File // of opConnect
}

func newKernel(sock *os.File) *kernel {
	return &kernel{sock: sock, waiting: map[uint32]chan answer{}, quiet: make(chan struct{}, 1), ended: make(chan struct{})}
}

// run reads answers until the warden is gone, which is always an error, or another box
// reads them.
func (k *kernel) run(p *pause.Pause) error {
	defer k.end(nil)
	return p.Loop(k.sock, k.read)
}

func (k *kernel) read() error {
	buf := make([]byte, maxAnswer)
	for {
		n, files, err := sys.RecvFDs(k.sock, buf, 1)
		if err != nil {
			return fmt.Errorf("read from the warden: %w", err)
		}
		switch {
		case n == 0:
			return ErrWardenGone
		case n < answerSize:
			sys.CloseAll(files)
			return fmt.Errorf("read from the warden: answer of %d bytes, want %d", n, answerSize)
		}
		id := binary.LittleEndian.Uint32(buf[4:])
		a := answerOf(buf[:n])
		if id == 0 {
			k.end(&a)
			continue
		}
		k.mu.Lock()
		if c := k.waiting[id]; c != nil {
			if len(files) > 0 {
				a.socket, files = files[0], nil
			}
			c <- a
			k.answered(id)
		}
		k.mu.Unlock()
		sys.CloseAll(files)
	}
}

// end keeps the warden's last word, if there is one. Nothing is answered after it: who
// asks is not to wait until the kernel has taken the cell apart, which is some
// milliseconds, and a warden that died has said nothing.
func (k *kernel) end(last *answer) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.waiting == nil {
		return
	}
	k.last = last
	for _, c := range k.waiting {
		close(c)
	}
	k.waiting = nil
	close(k.ended)
}

// set is which one of the early gate's; the zero one is what it lets pass of a transport.
type set uint8

const (
	heldSet  set = iota + 1 // connects that wait for a person (B140)
	overSet                 // those of them that do not any more: address, and the cell's own port
	onceSet                 // what a connect may reach that takes a token (B143)
	tokenSet                // the tokens
)

// span is one element of the gate's sets.
type span struct {
	in          set
	transport   flow.Transport
	first, last netip.Addr
	ports       right.PortRange
	token       uint32 // of onceSet
}

// begin sends one request; the channel gets its answer, or is closed at the end.
func (k *kernel) begin(ctx context.Context, op uint32, s span) (uint32, chan answer, error) {
	k.mu.Lock()
	for k.held != nil && k.waiting != nil {
		held := k.held
		k.mu.Unlock()
		select {
		case <-held:
		case <-ctx.Done():
			return 0, nil, ctx.Err()
		}
		k.mu.Lock()
	}
	if k.waiting == nil {
		k.mu.Unlock()
		return 0, nil, ErrWardenGone
	}
	k.next++
	id, c := k.next, make(chan answer, 1)
	k.waiting[id] = c
	k.mu.Unlock()
	if err := sys.SendFDs(k.sock, encode(op, id, s)); err != nil {
		k.forget(id)
		return 0, nil, err
	}
	return id, c, nil
}

func (k *kernel) forget(id uint32) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.answered(id)
}

// answered is for mu held.
func (k *kernel) answered(id uint32) {
	delete(k.waiting, id)
	if len(k.waiting) == 0 {
		select {
		case k.quiet <- struct{}{}:
		default:
		}
	}
}

// hold keeps what is to be asked waiting, until release, and returns when everything that
// was asked has its answer.
func (k *kernel) hold(ctx context.Context) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.held = make(chan struct{})
	for len(k.waiting) > 0 {
		k.mu.Unlock()
		var err error
		select {
		case <-k.quiet:
		case <-k.ended:
		case <-ctx.Done():
			err = fmt.Errorf("wait for the warden's answers: %w", ctx.Err())
		}
		k.mu.Lock()
		if err != nil {
			return err
		}
	}
	if k.waiting == nil {
		return ErrWardenGone
	}
	return nil
}

// release ends a hold. Another box may have asked meanwhile, by the numbers that come
// next: what is still answered of that must not pass for an answer to us.
func (k *kernel) release() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.next += heirsNumbers
	if k.held != nil {
		close(k.held)
		k.held = nil
	}
}

// finish waits for an answer.
func (k *kernel) finish(ctx context.Context, id uint32, c chan answer) (answer, error) {
	select {
	case a, ok := <-c:
		if !ok {
			return answer{}, ErrWardenGone
		}
		return a, nil
	case <-ctx.Done():
		k.forget(id)
		select {
		case a := <-c: // it came meanwhile
			if a.socket != nil {
				_ = a.socket.Close()
			}
		default:
		}
		return answer{}, ctx.Err()
	}
}

// change adds or removes elements and returns when the kernel has acknowledged
// all (B14). All are sent before the first answer is waited for. An element that
// is there already, or already gone, is as good.
func (k *kernel) change(ctx context.Context, op uint32, spans []span) error {
	ids, waits := make([]uint32, len(spans)), make([]chan answer, len(spans))
	for i, s := range spans {
		var err error
		if ids[i], waits[i], err = k.begin(ctx, op, s); err != nil {
			return fmt.Errorf("change the early gate: %w", err)
		}
	}
	for i := range spans {
		a, err := k.finish(ctx, ids[i], waits[i])
		switch {
		case err != nil:
			return fmt.Errorf("change the early gate: %w", err)
		case a.errno == 0, op == opAdd && a.errno == syscall.EEXIST, op == opRemove && a.errno == syscall.ENOENT:
		default:
			return fmt.Errorf("change the early gate: %w", a.errno)
		}
	}
	return nil
}

// shut lets no new flow through the early gate, or lets them again: by a mark in its
// set that is the address of nothing (B13).
func (k *kernel) shut(ctx context.Context, shut bool) error {
	op := uint32(opRemove)
	if shut {
		op = opAdd
	}
	mark := span{transport: flow.TCP, first: name.ShutMark(), ports: right.PortRange{First: 1, Last: 1}}
	datagrams := mark
	datagrams.transport = flow.UDP
	return k.change(ctx, op, []span{mark, datagrams})
}

// refused is how many packets the early gate has refused so far (B17). Of a warden
// that is gone it is what it said last.
func (k *kernel) refused(ctx context.Context) (uint64, error) {
	id, c, err := k.begin(ctx, opCounter, span{})
	var a answer
	if err == nil {
		a, err = k.finish(ctx, id, c)
	}
	if last := k.told(ctx, err); last != nil {
		a, err = *last, nil
	}
	switch {
	case err != nil:
		return 0, fmt.Errorf("read the early gate's counter: %w", err)
	case a.errno != 0:
		return 0, fmt.Errorf("read the early gate's counter: %w", a.errno)
	}
	return a.value, nil
}

// told is the warden's last word, nil if err is no sign that it is gone, or if it
// left without one. Before run has ended, that word may still be on its way.
func (k *kernel) told(ctx context.Context, err error) *answer {
	if !errors.Is(err, ErrWardenGone) && !errors.Is(err, syscall.EPIPE) && !errors.Is(err, syscall.ECONNRESET) {
		return nil
	}
	select {
	case <-k.ended:
	case <-ctx.Done():
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.last
}

// ready lets the warden start the agent: the box has answered a request under
// its policy (B163).
func (k *kernel) ready(ctx context.Context) error {
	id, c, err := k.begin(ctx, opReady, span{})
	if err == nil {
		_, err = k.finish(ctx, id, c)
	}
	if err != nil {
		return fmt.Errorf("let the agent start: %w", err)
	}
	return nil
}

// tokenAddr is a token as the address that it is sent as.
func tokenAddr(token uint32) netip.Addr {
	return netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, token)))
}

func encode(op, id uint32, s span) []byte {
	b := make([]byte, requestSize)
	binary.LittleEndian.PutUint32(b, op)
	binary.LittleEndian.PutUint32(b[4:], id)
	if !s.first.IsValid() {
		return b
	}
	b[8] = 4
	if s.first.Is6() {
		b[8] = 6
	}
	b[9] = map[flow.Transport]byte{flow.TCP: 6, flow.UDP: 17}[s.transport]
	if s.in != 0 {
		b[9] = byte(s.in)
	}
	binary.LittleEndian.PutUint16(b[10:], s.ports.First)
	binary.LittleEndian.PutUint16(b[12:], s.ports.Last)
	copy(b[16:32], s.first.AsSlice())
	if s.last.IsValid() && s.last != s.first {
		copy(b[32:48], s.last.AsSlice())
	}
	if s.in == onceSet { // behind its four bytes is what stands there with one of IPv4: the port
		copy(b[32:48], append(tokenAddr(s.token).AsSlice(), byte(s.ports.Last>>8), byte(s.ports.Last)))
	}
	return b
}
