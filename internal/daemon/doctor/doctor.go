// Package doctor says what this host offers and what is missing, with the command
// that would help.
//
// Its laws:
//   - Looking changes nothing on the host.
//   - Judging is pure: what was seen goes in, findings come out.
//   - What is missing is never called ok: an unknown answer is missing.
package doctor

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"skep.dev/skep/internal/cell"
	"skep.dev/skep/internal/sys"
)

// Status is how a part of the host is.
type Status string

// The statuses. Degraded works with a weaker wall or limit.
const (
	OK       Status = "ok"
	Missing  Status = "missing"
	Degraded Status = "degraded"
)

// Finding is one line.
type Finding struct {
	Name   string
	Status Status
	Detail string
	Fix    string
}

// Host is what was seen.
type Host struct {
	Kernel         string
	UserNamespaces int64 // how many this user may have; 0 is none
	Restricted     bool  // AppArmor keeps them from ordinary users
	LandlockABI    int   // 0: none
	Notify         bool  // seccomp user notification
	Overlay        bool
	IPv6           bool
}

// Look asks the running kernel.
func Look() Host {
	abi, err := sys.LandlockABI()
	if err != nil {
		abi = 0 // what cannot be asked is missing
	}
	return Host{
		Kernel:         text("/proc/sys/kernel/osrelease"),
		UserNamespaces: number("/proc/sys/user/max_user_namespaces"),
		Restricted:     number("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") > 0,
		LandlockABI:    abi,
		Notify:         strings.Contains(text("/proc/sys/kernel/seccomp/actions_avail"), "user_notif"),
		Overlay:        strings.Contains(text("/proc/filesystems"), "\toverlay"),
		IPv6:           exists("/proc/net/if_inet6"),
	}
}

// Findings judges a host and what the worker found on it.
func Findings(h Host, f cell.Features) []Finding {
	out := []Finding{
		{Name: "kernel", Status: OK, Detail: h.Kernel},
		namespaces(h),
		judge("overlay with userxattr", h.Overlay, "writable grants are overlays", "load the module: modprobe overlay"),
		landlock(h),
		judge("seccomp notification", h.Notify, "the cell sees its own limits", "use a kernel with CONFIG_SECCOMP_FILTER, 5.9 or later"),
	}
	mode := Finding{Name: "id range", Status: OK, Detail: "agents run under ids of their own, on idmapped mounts"}
	if !f.Capable {
		mode.Status, mode.Detail = Degraded, "agents run under your own id, with the same walls"
		mode.Fix = "start Skep as root: `make run` as root makes the system user skep and its range of ids, which the agents of root's cells run under"
	}
	out = append(out, mode)
	out = append(out, limit("memory limit", f.Limits.Memory), limit("cpu limit", f.Limits.CPU))
	pids := limit("process limit", f.Limits.Pids)
	if !f.Limits.Memory { // no group at all: the namespace's own limit holds
		pids = Finding{Name: pids.Name, Status: OK, Detail: "held by RLIMIT_NPROC of the cell's namespace"}
	}
	out = append(out, pids)
	v6 := Finding{Name: "IPv6", Status: OK, Detail: "cells have both families"}
	if !h.IPv6 {
		v6.Status, v6.Detail = Degraded, "AAAA answers are empty"
	}
	return append(out, v6)
}

func limit(name string, held bool) Finding {
	if held {
		return Finding{Name: name, Status: OK, Detail: "held by a cgroup"}
	}
	return Finding{
		Name: name, Status: Degraded, Detail: "no cgroup controller is delegated",
		Fix: "run under systemd with Delegate=yes, or write `if_available: true` beside the limit",
	}
}

func namespaces(h Host) Finding {
	f := Finding{Name: "user namespaces", Status: OK, Detail: fmt.Sprintf("up to %d", h.UserNamespaces)}
	switch {
	case h.UserNamespaces == 0:
		f.Status, f.Detail, f.Fix = Missing, "this kernel gives none", "sysctl user.max_user_namespaces=10000"
	case h.Restricted:
		f.Status, f.Detail = Missing, "AppArmor keeps them from ordinary users"
		f.Fix = "sysctl kernel.apparmor_restrict_unprivileged_userns=0, or start Skep as root"
	}
	return f
}

// landlock: below ABI 2 a cell refuses to start (L10).
func landlock(h Host) Finding {
	f := Finding{Name: "Landlock", Status: OK, Detail: fmt.Sprintf("ABI %d", h.LandlockABI)}
	switch {
	case h.LandlockABI < 2:
		f.Status, f.Fix = Missing, "use Linux 6.1 or later with lsm=landlock among its boot parameters"
	case h.LandlockABI < 6:
		f.Status = Degraded
		f.Detail += ": no scopes for signals and abstract sockets; the namespaces hold these"
	}
	return f
}

func judge(name string, ok bool, detail, fix string) Finding {
	if ok {
		return Finding{Name: name, Status: OK, Detail: detail}
	}
	return Finding{Name: name, Status: Missing, Detail: "this kernel has it not", Fix: fix}
}

func text(file string) string {
	raw, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(raw))
}

func number(file string) int64 {
	n, err := strconv.ParseInt(text(file), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}
