package tcpsock

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"testing"
)

// The owner of the other end of a TCP connection is the kernel's word.
func TestOwner(t *testing.T) {
	for _, at := range []string{"127.0.0.1:0", "[::1]:0"} {
		l, err := net.Listen("tcp", at)
		if err != nil {
			t.Log(err)
			continue
		}
		defer l.Close()
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		end := func(a net.Addr) netip.AddrPort { return netip.MustParseAddrPort(a.String()) }
		uid, err := Owner(end(c.LocalAddr()), end(c.RemoteAddr()))
		if err != nil || int(uid) != os.Getuid() {
			t.Errorf("%s: user %d, %v; want %d", at, uid, err, os.Getuid())
		}
		other := netip.AddrPortFrom(end(c.LocalAddr()).Addr(), 1)
		if _, err := Owner(other, end(c.RemoteAddr())); !errors.Is(err, ErrNoSocket) {
			t.Errorf("%s: a socket that is not there: %v", at, err)
		}
	}
	for _, answer := range [][]byte{nil, make([]byte, 16), make([]byte, 20), make([]byte, 100)} {
		if _, err := diagOwner(answer); err == nil {
			t.Errorf("an answer of %d zeros was taken", len(answer))
		}
	}
}
