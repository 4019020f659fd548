package setup

import (
	"errors"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// marker says that this process runs in namespaces that its parent made. It is
// honoured only if they differ from the parent's, and the agent never sees it (G26, G30).
const marker = "SKEP_INIT_INSIDE"

// Inside reports whether the namespaces of --create-namespaces are around us already,
// and takes the marker out of the environment.
func Inside() bool {
	marked := os.Getenv(marker) != ""
	_ = os.Unsetenv(marker)
	return marked && differs("net") && differs("mnt")
}

// differs compares our namespace with the parent's. A parent that cannot be looked at
// is in another one.
func differs(kind string) bool {
	ours, err := os.Readlink("/proc/self/ns/" + kind)
	if err != nil {
		return false
	}
	parents, err := os.Readlink("/proc/" + parent() + "/ns/" + kind)
	return err != nil || ours != parents
}

func parent() string {
	stat, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		return "1"
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(fields) < 2 {
		return "1"
	}
	return fields[1]
}

// Namespaces is how the program has to start itself to be inside: a user namespace
// first, in which the new network and mount namespaces are owned. Only where user
// namespaces are switched off does it use the power that it has, and then all of it
// (G30, G31).
func Namespaces() (*syscall.SysProcAttr, []string, error) {
	env := append(os.Environ(), marker+"=1")
	attr := &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS}
	if switchedOff() {
		switch {
		case !has(unix.CAP_SYS_ADMIN):
			return nil, nil, &Fault{Sentence: "user namespaces are switched off: set user.max_user_namespaces"}
		case !has(unix.CAP_NET_ADMIN):
			return nil, nil, &Fault{Sentence: "SYS_ADMIN alone makes the namespace and then fails on the tun device: remove it, or add NET_ADMIN"}
		}
		return attr, env, nil
	}
	if has(unix.CAP_SYS_ADMIN) && !has(unix.CAP_NET_ADMIN) {
		return nil, nil, &Fault{Sentence: "SYS_ADMIN alone makes the namespace and then fails on the tun device: remove it, or add NET_ADMIN"}
	}
	attr.Cloneflags |= unix.CLONE_NEWUSER
	attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getuid(), HostID: os.Getuid(), Size: 1}}
	attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getgid(), HostID: os.Getgid(), Size: 1}}
	attr.GidMappingsEnableSetgroups = false
	attr.AmbientCaps = []uintptr{unix.CAP_NET_ADMIN, unix.CAP_SYS_ADMIN, unix.CAP_SETPCAP} // for the device, mounts, and the drop
	return attr, env, nil
}

func switchedOff() bool {
	return reads("/proc/sys/user/max_user_namespaces", "0") || reads("/proc/sys/kernel/unprivileged_userns_clone", "0")
}

func reads(path, want string) bool {
	got, err := os.ReadFile(path)
	return err == nil && strings.TrimSpace(string(got)) == want
}

// NamespaceFault says why the program could not be started inside.
func NamespaceFault(err error) *Fault {
	switch {
	case reads("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1"):
		return &Fault{"AppArmor restricts user namespaces on this host: set kernel.apparmor_restrict_unprivileged_userns=0 or load a profile for skep-init", err}
	case errors.Is(err, unix.ENOSPC):
		return &Fault{"user namespaces are switched off: set user.max_user_namespaces", err}
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return &Fault{"a seccomp or LSM profile forbids user namespaces (Docker's default does): use a profile that allows unshare", err}
	}
	return &Fault{"the namespaces could not be made", err}
}
