package setup

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"skep.dev/skep/guest/netstack"
	"skep.dev/skep/internal/name"
)

// OpenTun makes the device, gives it its addresses and both default routes (G23). It
// returns a non-blocking descriptor, and whether IPv6 is there.
func OpenTun() (fd int, ipv6 bool, err error) {
	fd, err = unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return -1, false, tunFault(err)
	}
	defer func() {
		if err != nil {
			_ = unix.Close(fd)
		}
	}()
	request, err := unix.NewIfreq(Tun)
	if err != nil {
		return -1, false, err
	}
	request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, request); err != nil {
		return -1, false, attachFault(err, has(unix.CAP_SYS_ADMIN))
	}
	ipv6 = hasIPv6()
	if err := configure(ipv6); err != nil {
		return -1, false, &Fault{"the tun device could not be given its addresses and routes", err}
	}
	return fd, ipv6, nil
}

func hasIPv6() bool {
	off, err := os.ReadFile("/proc/sys/net/ipv6/conf/all/disable_ipv6")
	return err == nil && len(off) > 0 && off[0] == '0'
}

func configure(ipv6 bool) error {
	for _, name := range []string{"lo", Tun} {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return fmt.Errorf("find %s: %w", name, err)
		}
		if name == Tun {
			if err := netlink.LinkSetMTU(link, netstack.MTU); err != nil {
				return fmt.Errorf("set the MTU: %w", err)
			}
		}
		if err := netlink.LinkSetUp(link); err != nil {
			return fmt.Errorf("set %s up: %w", name, err)
		}
	}
	link, err := netlink.LinkByName(Tun)
	if err != nil {
		return err
	}
	addresses := []netip.Addr{name.Cell4()}
	if ipv6 {
		addresses = append(addresses, name.Cell6())
	}
	for _, a := range addresses {
		if err := address(link, a); err != nil {
			return err
		}
	}
	return nil
}

// address adds one address and the default route of its family. Duplicate address
// detection would only delay the first flow.
func address(link netlink.Link, a netip.Addr) error {
	whole := net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())}
	add := &netlink.Addr{IPNet: &whole}
	if a.Is6() {
		add.Flags = unix.IFA_F_NODAD
	}
	if err := netlink.AddrAdd(link, add); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("add address %s: %w", a, err)
	}
	all := net.IPNet{IP: make(net.IP, len(a.AsSlice())), Mask: net.CIDRMask(0, a.BitLen())}
	if err := netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Dst: &all, Src: a.AsSlice()}); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("add the default route of %s: %w", a, err)
	}
	return settled(a)
}

// settleTime bounds the kernel's own work on a new address.
const settleTime = 5 * time.Second

// settled waits until packets to a are ours: the kernel lets an IPv6 address in from a
// queue of its own, and drops what comes before.
func settled(a netip.Addr) error {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(settleTime); time.Now().Before(deadline); <-tick.C {
		routes, err := netlink.RouteGet(a.AsSlice())
		if err == nil && len(routes) > 0 && routes[0].Type == unix.RTN_LOCAL {
			return nil
		}
	}
	return fmt.Errorf("address %s was not usable after %s", a, settleTime)
}

// TryTun opens the device file and attaches a device that goes with the descriptor.
func TryTun() error {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return tunFault(err)
	}
	defer func() { _ = unix.Close(fd) }()
	request, err := unix.NewIfreq(Tun)
	if err != nil {
		return err
	}
	request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, request); err != nil {
		return attachFault(err, has(unix.CAP_SYS_ADMIN))
	}
	return nil
}

// Loopback sets lo up, for a route without a device of ours.
func Loopback() error {
	link, err := netlink.LinkByName("lo")
	if err == nil && link.Attrs().Flags&net.FlagUp == 0 {
		err = netlink.LinkSetUp(link)
	}
	if err != nil {
		return &Fault{"lo could not be set up", err}
	}
	return nil
}
