package name

import "strings"

// The names that Skep itself answers for. The zone alt is outside the DNS (RFC 9476).
const (
	Model  = "mesh.skep.alt"   // model gateway (B70 row 1)
	Policy = "policy.skep.alt" // what was refused (B70 row 2)
	Nobody = "nobody.skep.alt" // what no policy allows: a new one is asked for it (B163)
)

// UnderAlt reports whether a normalised name is alt or lies below it. Such a
// name is never resolved outside (B70).
func UnderAlt(host string) bool { return host == "alt" || strings.HasSuffix(host, ".alt") }

// Loopback reports whether a normalised name always means the asker's own host
// (RFC 6761; B53).
func Loopback(host string) bool {
	return host == "localhost" || strings.HasSuffix(host, ".localhost")
}

// Below reports whether host lies below parent, and by how many labels. A name
// is not below itself.
func Below(host, parent string) (int, bool) {
	dot := len(host) - len(parent) - 1
	if dot <= 0 || host[dot] != '.' || host[dot+1:] != parent {
		return 0, false
	}
	return strings.Count(host[:dot], ".") + 1, true
}
