package setup

import (
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestGI1Sentences: each fault has its sentence, and says what to change (G60).
func TestGI1Sentences(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{judge("eth0"), "this network namespace has interface eth0, so the agent would have a second way out; start the container with network none or use --create-namespaces"},
		{judge("sit0"), "the kernel put sit0 into every new network namespace; set net.core.fb_tunnels_only_for_init_net=1 on the host"},
		{tunFault(fs.ErrNotExist), "there is no /dev/net/tun: add the device to the container (or, in a VM, build the kernel with CONFIG_TUN)"},
		{tunFault(unix.ENODEV), "/dev/net/tun exists but the kernel has no tun driver: load the tun module or use a kernel with CONFIG_TUN"},
		{tunFault(unix.EACCES), "the device cgroup or mode forbids /dev/net/tun: allow character device 10:200"},
		{attachFault(unix.EPERM, false), "making a tun device needs CAP_NET_ADMIN in this namespace: add NET_ADMIN, or use --create-namespaces without SYS_ADMIN"},
		{attachFault(unix.EPERM, true), "SYS_ADMIN alone makes the namespace and then fails on the tun device: remove it, or add NET_ADMIN"},
		{NamespaceFault(unix.ENOSPC), "user namespaces are switched off: set user.max_user_namespaces"},
		{Absent("/run/b", unix.ECONNREFUSED), "the boundary does not answer at /run/b: is its directory mounted and the box running"},
	} {
		if c.err == nil || !strings.HasPrefix(c.err.Error(), c.want) {
			t.Errorf("%v, want %s", c.err, c.want)
		}
	}
	if judge("lo") != nil || judge(Tun) != nil {
		t.Error("lo and ours are no second way out")
	}
}

func TestDangerousIsReadBack(t *testing.T) {
	if err := dropped(); err == nil && has(unix.CAP_NET_ADMIN) {
		t.Error("a capability that is there was not seen")
	}
	if s := (caps(0)).without(unix.CAP_NET_ADMIN); fmt.Sprint(s) != "0" || !mask(unix.CAP_BPF).has(unix.CAP_BPF) {
		t.Error("sets")
	}
}
