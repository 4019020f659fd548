// Package furniture is what stands in every cell though no profile grants it:
// generated files and the environment.
//
// Its laws:
//   - Nothing of the daemon's or the user's environment comes in, but what the
//     profile passes by name (L16).
//   - The files hold nothing of the host but its time zone (L16a).
package furniture

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"sort"
	"strings"

	"skep.dev/skep/internal/cell"
)

// The fixed places of a cell.
const (
	User     = "agent"
	Home     = "/home/agent"
	Path     = "/usr/local/bin:/usr/bin:/bin"
	Shell    = "/bin/sh"
	resolver = "100.127.255.253" // B11
)

// Files are the generated files of a cell (L16a). zone is the content of the
// host's time zone file, empty for UTC.
func Files(hostname string, uid, gid uint32, zone []byte) []cell.File {
	text := func(path, format string, args ...any) cell.File {
		return cell.File{Path: path, Content: fmt.Appendf(nil, format, args...)}
	}
	files := []cell.File{
		text("/etc/passwd", "root:x:0:0:root:/root:/usr/sbin/nologin\n%s:x:%d:%d:%s:%s:%s\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n", User, uid, gid, User, Home, Shell),
		text("/etc/group", "root:x:0:\n%s:x:%d:\nnogroup:x:65534:\n", User, gid),
		text("/etc/hosts", "127.0.0.1 localhost %s\n::1 localhost ip6-localhost ip6-loopback\n", hostname),
		text("/etc/hostname", "%s\n", hostname),
		text("/etc/nsswitch.conf", "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\nnetworks: files\nprotocols: files\nservices: files\n"),
		text("/etc/resolv.conf", "nameserver %s\noptions timeout:5 attempts:2\n", resolver),
		text("/etc/machine-id", "%s\n", machineID()),
	}
	if len(zone) > 0 {
		files = append(files, cell.File{Path: "/etc/localtime", Content: zone})
	}
	return files
}

// machineID is 32 hex digits of no meaning: a cell is no machine that one could
// recognise.
func machineID() string {
	var raw [16]byte
	_, _ = rand.Read(raw[:]) // never fails (crypto/rand)
	return hex.EncodeToString(raw[:])
}

// Environment is the agent's, complete: ours, then the parts, of which a later one counts:
// what the profile passes, which must hold only names that it lists, what it sets, and the
// placeholders of its secrets.
func Environment(parts ...map[string]string) []string {
	all := map[string]string{
		"PATH": Path, "HOME": Home, "TMPDIR": "/tmp", "USER": User, "LOGNAME": User, "SHELL": Shell,
	}
	for _, from := range parts {
		for name, value := range from {
			all[name] = value
		}
	}
	out := make([]string, 0, len(all))
	for name, value := range all {
		out = append(out, name+"="+value)
	}
	sort.Strings(out)
	return out
}

// Lookup is the value that an environment gives to a name.
func Lookup(env []string, name string) string {
	for _, pair := range env {
		if value, ok := strings.CutPrefix(pair, name+"="); ok {
			return value
		}
	}
	return ""
}
