package main

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// kernel are attempts to change what the agent may not, or to look at what it has.
func kernel() map[string]func(string) (string, error) {
	return map[string]func(string) (string, error){
		"route": func(string) (string, error) {
			return "", netlink.RouteAdd(&netlink.Route{LinkIndex: 1, Dst: &net.IPNet{IP: net.IPv4(8, 8, 8, 8).To4(), Mask: net.CIDRMask(32, 32)}})
		},
		"noroutes": func(string) (string, error) {
			all, err := netlink.RouteList(nil, netlink.FAMILY_V4)
			for _, r := range all {
				err = errors.Join(err, netlink.RouteDel(&r))
			}
			return strconv.Itoa(len(all)), err
		},
		"device": func(string) (string, error) {
			return "", netlink.LinkAdd(&netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Name: "d0"}})
		},
		"raw":        func(string) (string, error) { return socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP) },
		"raw6":       func(string) (string, error) { return socket(unix.AF_INET6, unix.SOCK_RAW, unix.IPPROTO_ICMPV6) },
		"packet":     func(string) (string, error) { return socket(unix.AF_PACKET, unix.SOCK_RAW, 0) },
		"ptrace":     func(string) (string, error) { return "", unix.PtraceAttach(os.Getppid()) },
		"descriptor": descriptorOfParent,
		"tun":        attach,
		"unshare":    unshare,
		"ifaces":     interfaces,
		"sockets":    hostSockets,
		"fds":        descriptors,
		"signal":     func(string) (string, error) { return "", syscall.Kill(os.Getppid(), syscall.SIGKILL) },
		"writable":   writable,
		"threads":    threadsOfParent,
	}
}

func socket(family, kind, protocol int) (string, error) {
	fd, err := unix.Socket(family, kind, protocol)
	if err == nil {
		_ = unix.Close(fd)
	}
	return "opened", err
}

// attach opens the device file and asks for a device.
func attach(name string) (string, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer func() { _ = unix.Close(fd) }()
	r, err := unix.NewIfreq(name)
	if err != nil {
		return "", err
	}
	r.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
	return "made", unix.IoctlIfreq(fd, unix.TUNSETIFF, r)
}

// descriptorOfParent tries to take one of skep-init's, by two ways.
func descriptorOfParent(string) (string, error) {
	parent := os.Getppid()
	for fd := range 64 {
		if f, err := os.Open(fmt.Sprintf("/proc/%d/fd/%d", parent, fd)); err == nil {
			_ = f.Close()
			return fmt.Sprintf("opened %d", fd), nil
		}
	}
	pidfd, err := unix.PidfdOpen(parent, 0)
	if err != nil {
		return "", err
	}
	defer func() { _ = unix.Close(pidfd) }()
	for fd := range 64 {
		if got, err := unix.PidfdGetfd(pidfd, fd, 0); err == nil {
			_ = unix.Close(got)
			return fmt.Sprintf("took %d", fd), nil
		}
	}
	return "", unix.EPERM
}

// unshare runs attempts in namespaces of our own: its argument are they, with blanks between.
func unshare(attempts string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	c := exec.Command(self, strings.Fields(attempts)...)
	c.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}, GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
	}
	out, err := c.Output()
	return strings.ReplaceAll(strings.TrimSpace(string(out)), "\n", "; "), err
}

func interfaces(string) (string, error) {
	all, err := net.Interfaces()
	var names []string
	for _, i := range all {
		names = append(names, i.Name)
	}
	slices.Sort(names)
	return strings.Join(names, " "), err
}

// hostSockets are the Unix sockets that this network namespace has, abstract ones too.
func hostSockets(string) (string, error) {
	text, err := os.ReadFile("/proc/net/unix")
	var names []string
	for line := range bytes.Lines(text) {
		if f := strings.Fields(string(line)); len(f) > 7 && f[7] != "Path" {
			names = append(names, f[7])
		}
	}
	return strings.Join(names, " "), err
}

func descriptors(string) (string, error) {
	var open []string
	for fd := range 1024 { // not by opening a directory, which is one more
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil {
			target, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
			if err == nil && !strings.HasPrefix(target, "anon_inode:") && !strings.HasPrefix(target, "/sys/fs/cgroup") { // of Go's runtime
				open = append(open, strconv.Itoa(fd))
			}
		}
	}
	return strings.Join(open, " "), nil
}

// writable says which of some paths may be written, with blanks between.
func writable(paths string) (string, error) {
	var all []string
	for p := range strings.FieldsSeq(paths) {
		if unix.Access(p, unix.W_OK) == nil {
			all = append(all, filepath.Base(p))
		}
	}
	return strings.Join(all, " "), nil
}

// threadsOfParent are the capability sets of every thread of skep-init, each once.
func threadsOfParent(string) (string, error) {
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", os.Getppid()))
	var sets []string
	for _, path := range tasks {
		text, _ := os.ReadFile(path)
		for line := range bytes.Lines(text) {
			if s := strings.Join(strings.Fields(string(line)), ""); (strings.HasPrefix(s, "Cap") || strings.HasPrefix(s, "NoNewPrivs")) && !slices.Contains(sets, s) {
				sets = append(sets, s)
			}
		}
	}
	return strings.Join(sets, " "), err
}
