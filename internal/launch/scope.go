package launch

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/godbus/dbus/v5"
)

// scopeTime bounds what a manager may take to answer.
const scopeTime = time.Second

// LeaveSession asks the service manager for a delegated scope for this process, so
// that the end of the login does not end it and it may limit its cells (L13).
// Without a manager that answers within a second, the session that it was started
// with has to do.
func LeaveSession() error {
	ctx, cancel := context.WithTimeout(context.Background(), scopeTime)
	defer cancel()
	return scope(ctx, os.Getpid(), os.Getuid())
}

func scope(ctx context.Context, pid, uid int) error {
	address := "unix:path=/run/user/" + strconv.Itoa(uid) + "/bus"
	if _, err := os.Stat(address[len("unix:path="):]); err != nil {
		return fmt.Errorf("find the bus: %w", err)
	}
	conn, err := dbus.Connect(address, dbus.WithContext(ctx))
	if err != nil {
		return fmt.Errorf("connect to the bus: %w", err)
	}
	defer func() { _ = conn.Close() }()
	type property struct {
		Name  string
		Value dbus.Variant
	}
	type auxiliary struct {
		Name       string
		Properties []property
	}
	properties := []property{
		{"Description", dbus.MakeVariant("skepd")},
		{"PIDs", dbus.MakeVariant([]uint32{uint32(pid)})},
		{"Delegate", dbus.MakeVariant(true)},
		{"CollectMode", dbus.MakeVariant("inactive-or-failed")},
	}
	call := conn.Object("org.freedesktop.systemd1", "/org/freedesktop/systemd1").CallWithContext(ctx,
		"org.freedesktop.systemd1.Manager.StartTransientUnit", 0,
		fmt.Sprintf("skepd-%d.scope", pid), "fail", properties, []auxiliary{})
	if call.Err != nil {
		return fmt.Errorf("start a scope: %w", call.Err)
	}
	return moved(ctx, fmt.Sprintf("skepd-%d.scope", pid))
}

// moved waits until we are in the scope: the manager answers before it has done it.
func moved(ctx context.Context, name string) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		raw, err := os.ReadFile("/proc/self/cgroup")
		if err != nil {
			return fmt.Errorf("look for the scope: %w", err)
		}
		if strings.Contains(string(raw), name) {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("wait for the scope: %w", ctx.Err())
		}
	}
}
