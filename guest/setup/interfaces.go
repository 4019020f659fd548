package setup

import (
	"fmt"
	"net"
	"slices"

	"github.com/vishvananda/netlink"
)

// Tun is the name of our device.
const Tun = "tun0"

// fallbacks are devices that a kernel may put into every new namespace.
func fallbacks() []string {
	return []string{"sit0", "tunl0", "ip6tnl0", "gre0", "gretap0", "erspan0", "ip_vti0", "ip6_vti0", "ip6gre0"}
}

// NoForeign refuses a namespace with any other interface than lo and ours (G11).
func NoForeign() error {
	all, err := net.Interfaces()
	if err != nil {
		return &Fault{"the network interfaces could not be listed", err}
	}
	for _, i := range all {
		if err := judge(i.Name); err != nil {
			return err
		}
	}
	return nil
}

func judge(name string) error {
	switch {
	case name == "lo" || name == Tun:
		return nil
	case slices.Contains(fallbacks(), name):
		return fallback(name)
	}
	return foreign(name)
}

// Watch calls end once, with the reason, when a foreign interface appears or the watch
// itself fails (G12). What appeared before the watch began is judged first.
func Watch(end func(error)) error {
	updates, done := make(chan netlink.LinkUpdate), make(chan struct{})
	failed := func(err error) { end(&Fault{"the network interfaces can no longer be watched", err}) }
	if err := netlink.LinkSubscribeWithOptions(updates, done, netlink.LinkSubscribeOptions{ErrorCallback: failed, ListExisting: true}); err != nil {
		return &Fault{"the network interfaces could not be watched", err}
	}
	go func() {
		for u := range updates {
			if err := judge(u.Attrs().Name); err != nil {
				end(err)
				close(done)
				return
			}
		}
		failed(fmt.Errorf("the kernel ended the subscription"))
	}()
	return NoForeign()
}
