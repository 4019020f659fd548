package box

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"testing"
	"time"

	skepv1 "skep.dev/skep/api/skep/v1"
)

// BG-7 and N29: UDP other than DNS fails at once, so that a client falls back.
func TestBG7UDP(t *testing.T) {
	l := start(t, &skepv1.Assignment{Policy: &skepv1.BoxPolicy{Rules: []*skepv1.BoxRule{nameRule("ok.test", public4, 443)}}}, nil)
	for _, addr := range []netip.Addr{l.resolve("ok.test", false), l.resolve("ok.test", true), netip.MustParseAddr("8.8.8.8")} {
		l.do(func() {
			c, err := net.Dial("udp", netip.AddrPortFrom(addr, 443).String())
			if err != nil {
				return
			}
			defer c.Close()
			_ = c.SetDeadline(deadline())
			_, err = c.Write([]byte("quic"))
			if err == nil {
				_, err = c.Read(make([]byte, 1))
			}
			if !errors.Is(err, syscall.ECONNREFUSED) && !errors.Is(err, syscall.EPERM) {
				t.Errorf("%s: %v", addr, err)
			}
		})
	}
	l.finish()
	got := map[string]string{}
	for _, r := range l.daemon.all() {
		got[r.Transport+" "+r.Destination] = r.Reason
	}
	if got["udp ok.test:443"] != "transport-not-allowed" || got["udp 8.8.8.8:443"] != "ip-not-on-allowlist" {
		t.Errorf("%v", got)
	}
}

// N19: data inside the SYN and multipath TCP are under the same gate.
func TestFastOpenAndMultipath(t *testing.T) {
	port := echoAt(t, public4+":0")
	l := start(t, &skepv1.Assignment{Policy: &skepv1.BoxPolicy{Rules: []*skepv1.BoxRule{nameRule("ok.test", public4, port)}}}, nil)
	l.do(func() {
		const fastOpen = 0x20000000 // MSG_FASTOPEN
		fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
		if err != nil {
			t.Error(err)
			return
		}
		defer syscall.Close(fd)
		if err := syscall.Sendto(fd, []byte("secret"), fastOpen, &syscall.SockaddrInet4{Port: 443, Addr: [4]byte{9, 9, 9, 9}}); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("fast open: %v", err)
		}
		multi := &net.Dialer{}
		multi.SetMultipathTCP(true)
		if c, err := multi.Dial("tcp", "9.9.9.9:444"); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("multipath: %v", err)
			if err == nil {
				c.Close()
			}
		}
	})
	addr := l.resolve("ok.test", false)
	var c net.Conn
	l.do(func() {
		multi := &net.Dialer{}
		multi.SetMultipathTCP(true)
		var err error
		if c, err = multi.Dial("tcp", netip.AddrPortFrom(addr, port).String()); err != nil {
			t.Errorf("multipath to an allowed name: %v", err)
		}
	})
	if c != nil {
		_ = c.SetDeadline(deadline())
		t.Cleanup(func() {
			if t.Failed() {
				t.Log(l.daemon.all())
			}
		})
		says(t, c, "hello")
		c.Close()
	}
	l.finish()
	got := map[string]bool{}
	for _, r := range l.daemon.all() {
		got[r.Destination+" "+r.Decision] = true
	}
	for _, want := range []string{"9.9.9.9:443 block", "9.9.9.9:444 block", fmt.Sprintf("ok.test:%d allow", port)} {
		if !got[want] {
			t.Errorf("no record %q: %v", want, got)
		}
	}
}

// BX-8: an address that becomes the host's own is on the floor from then on.
func TestBX8OwnAddressIsPushed(t *testing.T) {
	port := echoAt(t, public4+":0")
	l := start(t, &skepv1.Assignment{Policy: &skepv1.BoxPolicy{Rules: []*skepv1.BoxRule{nameRule("ok.test", public4, port)}}}, nil)
	dst := netip.AddrPortFrom(l.resolve("ok.test", false), port).String()
	c, err := l.dial(dst)
	if err != nil {
		t.Fatal(err)
	}
	says(t, c, "x")
	c.Close()
	l.daemon.updates <- &skepv1.ResolverUpdate{OwnAddresses: []string{public4}}
	// The update travels beside the flows: ask until it is there. One that is open when it
	// comes is revoked, and no denial.
	refused := func(r *skepv1.FlowRecord) bool { return r.Reason == "resolved-address-denied" }
	for late := time.Now().Add(10 * time.Second); time.Now().Before(late) && !slices.ContainsFunc(l.daemon.all(), refused); {
		c, err := l.dial(dst)
		if err == nil {
			_, _ = c.Write([]byte("x"))
			_, _ = c.Read(make([]byte, 1))
			c.Close()
		}
	}
	denied := l.daemon.find(t, "of the denial", refused)
	if denied.Dropped != 1 || denied.Decision != "block" {
		t.Errorf("%v", denied)
	}
	l.finish()
}

// BG-17: an agent's reset reaches the far side, and a flow that is cut by the
// end of the cell is recorded with what it moved.
func TestEndOfCellRecordsFlows(t *testing.T) {
	port := echoAt(t, public4+":0")
	l := start(t, &skepv1.Assignment{Policy: &skepv1.BoxPolicy{Rules: []*skepv1.BoxRule{nameRule("ok.test", public4, port)}}}, nil)
	c, err := l.dial(netip.AddrPortFrom(l.resolve("ok.test", false), port).String())
	if err != nil {
		t.Fatal(err)
	}
	says(t, c, "hello")
	l.finish()
	last := l.daemon.all()[len(l.daemon.all())-1]
	if last.Kind != skepv1.FlowRecord_KIND_OUTCOME || last.Reason != "revoked" || last.BytesUp != 5 || last.BytesDown != 5 {
		t.Errorf("%v", last)
	}
}
