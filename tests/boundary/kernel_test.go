package boundary

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"

	"github.com/google/nftables"
	"github.com/mdlayher/netlink"
)

// Numbers of rtnetlink(7), socket(7), vsock(7).
const (
	newLink, newAddr, newRoute, delRoute = 16, 20, 24, 25
	loopback                             = 1
	familyVsock                          = 40
)

// kernel is what an agent may try with its network namespace. Each returns nil if
// the kernel let it.
func kernel() map[string]func() error {
	return map[string]func() error{
		"raw":         func() error { return opened(syscall.AF_INET, syscall.SOCK_RAW, syscall.IPPROTO_TCP) },
		"raw6":        func() error { return opened(syscall.AF_INET6, syscall.SOCK_RAW, syscall.IPPROTO_TCP) },
		"packet":      func() error { return opened(syscall.AF_PACKET, syscall.SOCK_RAW, 0) },
		"vsock":       func() error { return opened(familyVsock, syscall.SOCK_STREAM, 0) },
		"lo down":     func() error { return route(newLink, 0, []byte{0, 0, 0, 0}, word(loopback), word(0), word(1)) },
		"new device":  func() error { return newDevice() },
		"new address": func() error { return newAddress() },
		"new route":   func() error { return route(newRoute, netlink.Create|netlink.Replace, defaultRoute()...) },
		"no route":    func() error { return route(delRoute, 0, defaultRoute()...) },
		"flush rules": flushRules,
		"unshare":     func() error { return syscall.Unshare(syscall.CLONE_NEWNET) },
	}
}

func opened(family, kind, protocol int) error {
	fd, err := syscall.Socket(family, kind, protocol)
	if err != nil {
		return err
	}
	return syscall.Close(fd)
}

func word(n uint32) []byte { return binary.NativeEndian.AppendUint32(nil, n) }

func attribute(kind uint16, data []byte) []byte {
	out := binary.NativeEndian.AppendUint16(nil, uint16(4+len(data)))
	out = append(binary.NativeEndian.AppendUint16(out, kind), data...)
	for len(out)%4 != 0 {
		out = append(out, 0)
	}
	return out
}

// defaultRoute is one of all IPv4 over lo, in the main table.
func defaultRoute() [][]byte {
	return [][]byte{{syscall.AF_INET, 0, 0, 0, 254, 3, 253, 1, 0, 0, 0, 0}, attribute(4, word(loopback))}
}

func newDevice() error {
	return route(newLink, netlink.Create|netlink.Excl, []byte{0, 0, 0, 0}, word(0), word(0), word(0),
		attribute(3, []byte("out\x00")), attribute(18, attribute(1, []byte("dummy"))))
}

func newAddress() error {
	ip := []byte{8, 8, 8, 8}
	return route(newAddr, netlink.Create|netlink.Excl, []byte{syscall.AF_INET, 32, 0, 0}, word(loopback), attribute(2, ip), attribute(1, ip))
}

// route sends one message of rtnetlink and returns the kernel's answer.
func route(kind netlink.HeaderType, flags netlink.HeaderFlags, body ...[]byte) error {
	c, err := netlink.Dial(syscall.NETLINK_ROUTE, nil)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	m := netlink.Message{Header: netlink.Header{Type: kind, Flags: netlink.Request | netlink.Acknowledge | flags}}
	for _, part := range body {
		m.Data = append(m.Data, part...)
	}
	_, err = c.Execute(m)
	return err
}

func flushRules() error {
	c, err := nftables.New()
	if err != nil {
		return err
	}
	c.FlushRuleset()
	return c.Flush()
}

// ownServers are on both loopbacks of the cell, and answer it.
func ownServers() error {
	for _, at := range []string{"127.0.0.1:0", "[::1]:0"} {
		ln, err := net.Listen("tcp", at)
		if err != nil {
			return err
		}
		go func() {
			if c, err := ln.Accept(); err == nil {
				_, _ = io.WriteString(c, "mine")
				_ = c.Close()
			}
		}()
		c, err := net.DialTimeout("tcp", ln.Addr().String(), patience)
		if err != nil {
			return err
		}
		got, err := io.ReadAll(io.LimitReader(c, 10))
		if err := errors.Join(err, c.Close(), ln.Close()); err != nil {
			return err
		}
		if string(got) != "mine" {
			return fmt.Errorf("the cell's own server says %q", got)
		}
	}
	return nil
}
