package setup

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"skep.dev/skep/internal/name"
)

const resolvConf = "/etc/resolv.conf"

const noMount = "the LSM profile forbids mounts: mount a resolv.conf with `nameserver 100.127.255.253` into this container"

// ResolvConf makes the resolver of virtual DNS the only one (G22): a file that says so
// is left alone; else it is written, or mounted over where it cannot be. Inside namespaces
// of our own the file is still somebody else's, so it is only mounted over.
func ResolvConf(inside bool) error {
	want := wanted()
	if ours() {
		return nil
	}
	if inside {
		// A mount of ours must not show outside.
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			return &Fault{"the mounts could not be made private", err}
		}
		return mountOver(want)
	}
	err := os.WriteFile(resolvConf, []byte(want), 0o644)
	if err == nil {
		return nil
	}
	if !errors.Is(err, fs.ErrPermission) && !errors.Is(err, unix.EROFS) && !errors.Is(err, unix.EBUSY) {
		return &Fault{"/etc/resolv.conf could not be written", err}
	}
	return mountOver(want)
}

// mountOver lays a file of our own over resolv.conf, in our own mount namespace.
func mountOver(text string) error {
	f, err := os.CreateTemp("", "skep-resolv-")
	if err == nil {
		_, err = f.WriteString(text)
		err = errors.Join(err, f.Chmod(0o644), f.Close())
	}
	if err == nil {
		defer func() { _ = os.Remove(f.Name()) }()
		err = unix.Mount(f.Name(), resolvConf, "", unix.MS_BIND, "")
	}
	if err != nil {
		return &Fault{noMount, err}
	}
	return nil
}

func wanted() string { return "nameserver " + name.Resolver4().String() + "\n" }

func ours() bool {
	got, err := os.ReadFile(resolvConf)
	return err == nil && string(got) == wanted()
}

// TryResolvConf says whether ResolvConf would succeed. Outside of namespaces of our own it
// changes nothing: a file that can be written, or the power to mount, is enough.
func TryResolvConf(inside bool) error {
	if inside {
		return ResolvConf(true)
	}
	if ours() || unix.Access(resolvConf, unix.W_OK) == nil || has(unix.CAP_SYS_ADMIN) {
		return nil
	}
	return &Fault{Sentence: noMount}
}
