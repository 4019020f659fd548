// Package setup makes the route of a guest: it checks what must hold, names the
// resolver, makes the tun device and its routes, and gives the power to change them up.
//
// Its laws:
//   - A failure is one sentence that says what failed, why, and what to change; never a
//     bare error number (guest.md, G60).
//   - Nothing falls back to another path (G20).
//   - After Drop no thread can change the network any more, and Drop reads it back (G24).
package setup

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"golang.org/x/sys/unix"
)

// Fault is a precondition that does not hold, as a sentence for a person.
type Fault struct {
	Sentence string
	Err      error
}

func (f *Fault) Error() string {
	if f.Err == nil {
		return f.Sentence
	}
	return f.Sentence + " (" + f.Err.Error() + ")"
}

func (f *Fault) Unwrap() error { return f.Err }

func foreign(name string) *Fault {
	return &Fault{Sentence: fmt.Sprintf("this network namespace has interface %s, so the agent would have a second way out; start the container with network none or use --create-namespaces", name)}
}

func fallback(name string) *Fault {
	return &Fault{Sentence: fmt.Sprintf("the kernel put %s into every new network namespace; set net.core.fb_tunnels_only_for_init_net=1 on the host", name)}
}

// tunFault says why /dev/net/tun could not be opened or made into a device.
func tunFault(err error) *Fault {
	sentence := "the tun device could not be made"
	switch {
	case errors.Is(err, fs.ErrNotExist):
		sentence = "there is no /dev/net/tun: add the device to the container (or, in a VM, build the kernel with CONFIG_TUN)"
	case errors.Is(err, unix.ENODEV), errors.Is(err, unix.ENXIO):
		sentence = "/dev/net/tun exists but the kernel has no tun driver: load the tun module or use a kernel with CONFIG_TUN"
	case errors.Is(err, fs.ErrPermission):
		sentence = "the device cgroup or mode forbids /dev/net/tun: allow character device 10:200"
	}
	return &Fault{sentence, err}
}

// attachFault says why the open device could not be attached.
func attachFault(err error, sysAdmin bool) *Fault {
	switch {
	case !errors.Is(err, syscall.EPERM):
		return &Fault{"the tun device could not be made", err}
	case sysAdmin:
		return &Fault{"SYS_ADMIN alone makes the namespace and then fails on the tun device: remove it, or add NET_ADMIN", err}
	}
	return &Fault{"making a tun device needs CAP_NET_ADMIN in this namespace: add NET_ADMIN, or use --create-namespaces without SYS_ADMIN", err}
}

// Absent says that the boundary does not answer.
func Absent(boundary string, err error) *Fault {
	return &Fault{fmt.Sprintf("the boundary does not answer at %s: is its directory mounted and the box running; (VM) is vsock configured, and the host socket named <uds>_PORT", boundary), err}
}
