package start

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// injected is a fault of guest.md, sections 2 and 7, and the sentence that has to come of it.
type injected struct {
	name, shell string   // shell lines that make it, as root in namespaces of their own
	by          []string // what stands before skep-init
	flags       []string
	routes      string // of those whose start meets it: tun, or both
	want        string
}

// without starts a program with some capabilities gone for good.
func without(caps string) []string {
	return []string{"setpriv", "--bounding-set", "-" + strings.ReplaceAll(caps, ",", ",-"), "--inh-caps", "-" + strings.ReplaceAll(caps, ",", ",-")}
}

func faults() []injected {
	user := []string{"setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"}
	inside := []string{"--create-namespaces"}
	return []injected{
		{name: "an interface", shell: "ip tuntap add dev eth7 mode tun", routes: "both",
			want: "this network namespace has interface eth7, so the agent would have a second way out; start the container with network none or use --create-namespaces"},
		{name: "a fallback device", shell: "ip tuntap add dev tunl0 mode tun", routes: "both",
			want: "the kernel put tunl0 into every new network namespace; set net.core.fb_tunnels_only_for_init_net=1 on the host"},
		{name: "no device file", shell: "mount -t tmpfs none /dev/net", routes: "tun",
			want: "there is no /dev/net/tun: add the device to the container (or, in a VM, build the kernel with CONFIG_TUN)"},
		{name: "no driver", shell: "mount -t tmpfs -o dev none /dev/net\nmknod /dev/net/tun c 10 254", routes: "tun",
			want: "/dev/net/tun exists but the kernel has no tun driver: load the tun module or use a kernel with CONFIG_TUN"},
		{name: "a device file of others", shell: "mount -t tmpfs -o dev none /dev/net\nmknod /dev/net/tun c 10 200\nchmod 0 /dev/net/tun", by: user, flags: inside, routes: "tun",
			want: "the device cgroup or mode forbids /dev/net/tun: allow character device 10:200"},
		{name: "no power to make a device", by: without("net_admin,sys_admin"), routes: "tun",
			want: "making a tun device needs CAP_NET_ADMIN in this namespace: add NET_ADMIN, or use --create-namespaces without SYS_ADMIN"},
		{name: "half of the power, at the device", by: without("net_admin"), routes: "tun",
			want: "SYS_ADMIN alone makes the namespace and then fails on the tun device: remove it, or add NET_ADMIN"},
		{name: "half of the power, before anything is made", by: without("net_admin"), flags: inside, routes: "both",
			want: "SYS_ADMIN alone makes the namespace and then fails on the tun device: remove it, or add NET_ADMIN"},
		{name: "user namespaces are forbidden", shell: "mount --rbind / /mnt", by: []string{"chroot", "/mnt"}, flags: inside, routes: "both",
			want: "a seccomp or LSM profile forbids user namespaces (Docker's default does): use a profile that allows unshare"},
		{name: "AppArmor", shell: "mount -t tmpfs none /proc/sys/kernel\necho 1 > /proc/sys/kernel/apparmor_restrict_unprivileged_userns\nmount --rbind / /mnt", by: []string{"chroot", "/mnt"}, flags: inside, routes: "both",
			want: "AppArmor restricts user namespaces on this host: set kernel.apparmor_restrict_unprivileged_userns=0 or load a profile for skep-init"},
		{name: "user namespaces are switched off", shell: "mount -t tmpfs none /proc/sys/user\necho 0 > /proc/sys/user/max_user_namespaces", by: user, flags: inside, routes: "both",
			want: "user namespaces are switched off: set user.max_user_namespaces"},
		{name: "no mount over resolv.conf", shell: "umount /etc/resolv.conf\nmount --bind /etc/hosts /etc/resolv.conf\nmount -o remount,bind,ro /etc/resolv.conf", by: without("sys_admin"), routes: "both",
			want: "the LSM profile forbids mounts: mount a resolv.conf with `nameserver 100.127.255.253` into this container"},
		{name: "the power cannot be dropped", by: without("setpcap"), routes: "both",
			want: "CAP_NET_ADMIN could not be dropped, so the agent could change its own network: not starting"},
	}
}

// TestGI1BothRoutes: each fault, injected, ends the start with 125 and its sentence in one
// line, and the agent does not start.
func TestGI1BothRoutes(t *testing.T) {
	dir, err := built()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil { // for the ordinary user of some faults
		t.Fatal(err)
	}
	bothRoutes(t, func(t *testing.T, flags []string) {
		for _, f := range faults() {
			if f.routes == "tun" && flags[1] == "explicit" {
				continue
			}
			t.Run(f.name, func(t *testing.T) {
				b := serveBoundary(t, nil)
				open(t, b.path)
				args := append(append([]string{filepath.Join(dir, "skep-init"), "run"}, flags...), f.flags...)
				out, code := contained(t, f.shell, append(append(append([]string(nil), f.by...), args...), b.path, "/bin/echo", "started")...)
				lines := strings.Split(strings.TrimSpace(out), "\n")
				if code != 125 || len(lines) != 1 || !strings.HasPrefix(lines[0], "skep-init: "+f.want) {
					t.Errorf("%d %s\nwant %s", code, out, f.want)
				}
				if asked := b.requests(); len(asked) > 0 {
					t.Errorf("the boundary was asked for %q", asked)
				}
			})
		}
	})
}

// open lets every user reach a socket below the test's directory.
func open(t *testing.T, path string) {
	t.Helper()
	for p := path; p != os.TempDir() && p != "/"; p = filepath.Dir(p) {
		if err := os.Chmod(p, 0o777); err != nil {
			t.Fatal(err)
		}
	}
}

// TestGI1NoBoundaryBothRoutes: a boundary that is not there, or does not listen.
func TestGI1NoBoundaryBothRoutes(t *testing.T) {
	bothRoutes(t, func(t *testing.T, flags []string) {
		dead := filepath.Join(t.TempDir(), "dead")
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: dead, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		l.SetUnlinkOnClose(false)
		_ = l.Close()
		for _, path := range []string{dead, dead + "-absent"} {
			out, code := guest(t, &testBoundary{path: path}, append(flags, "--ready", "100ms"), "/bin/echo", "started")
			want := "skep-init: the boundary does not answer at " + path + ": is its directory mounted and the box running; (VM) is vsock configured, and the host socket named <uds>_PORT"
			if code != 125 || !strings.HasPrefix(out, want) || strings.Contains(out, "started") {
				t.Errorf("%d %s", code, out)
			}
		}
	})
}

// TestCheckGuest: the preconditions, one line each, and nothing started (G4).
func TestCheckGuest(t *testing.T) {
	needTun(t, nil)
	dir, err := built()
	if err != nil {
		t.Fatal(err)
	}
	b := serveBoundary(t, nil)
	c := exec.Command(filepath.Join(dir, "skep-init"), "check", "--create-namespaces", b.path)
	out, err := c.CombinedOutput()
	if want := "resolver: ok\nno way out but lo: ok\nboundary: ok\ntun device: ok\nreaper of orphans: ok\n"; err != nil || string(out) != want {
		t.Errorf("%v\n%s", err, out)
	}
	c = exec.Command(filepath.Join(dir, "skep-init"), "check", "--create-namespaces", "--ready", "50ms", b.path+"-absent")
	out, _ = c.CombinedOutput()
	if c.ProcessState.ExitCode() != 125 || !strings.Contains(string(out), "boundary: the boundary does not answer at ") || !strings.Contains(string(out), "tun device: ok") {
		t.Errorf("%d\n%s", c.ProcessState.ExitCode(), out)
	}
	if len(b.requests()) != 0 {
		t.Errorf("a byte was sent: %q", b.requests())
	}
}

// TestStatement: what it says is what the programs do (G56).
func TestStatement(t *testing.T) {
	for flags, want := range map[string][]string{
		"": {"route: tun", "transports: tcp; udp is off", "records: A and AAAA", "pools: 100.64.0.0/10 and 100::/64", "resolver 100.127.255.253 and 100::ffff:ffff:ffff:fffd",
			"capacity: 65,536 names in each family, 500 queries a second, 1,024 attempts at once", "reuse: no address", "mtu: 65520", "a denial: a reset on the SYN", "100 ms", "200 ms"},
		"--udp":            {"udp by connect-udp, 256 flows at once"},
		"--pool-slice 5":   {"pools: slice 5 of"},
		"--route explicit": {"route: explicit", "no SOCKS", "transports: tcp", "records: none", "capacity: 1,024", "a denial: the boundary's own answer"},
	} {
		var out strings.Builder
		if code, err := Main(append([]string{"check", "--statement"}, strings.Fields(flags)...), &out); code != 0 || err != nil {
			t.Errorf("%s: %d, %v", flags, code, err)
		}
		for _, w := range want {
			if !strings.Contains(out.String(), w) {
				t.Errorf("%s lacks %q:\n%s", flags, w, out.String())
			}
		}
	}
}
