package profile

import (
	"encoding/base64"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"skep.dev/skep/internal/name"
	"skep.dev/skep/internal/strict"
)

// MaxAgentList bounds each list of agent_socket.
const MaxAgentList = 64

// AgentSocket is the use of the caller's ssh-agent (L15). The zero value grants none.
type AgentSocket struct {
	Granted bool
	Keys    []string // fingerprints as `ssh-add -l` shows them, sorted; none: every key of the agent
	Hosts   []string // HOST:PORT where they may log in, sorted; none: any signature
}

// covers tells whether b grants nothing that a does not.
func (a AgentSocket) covers(b AgentSocket) bool {
	within := func(all, some []string) bool {
		return len(all) == 0 || len(some) > 0 && !slices.ContainsFunc(some, func(s string) bool { return !slices.Contains(all, s) })
	}
	return !b.Granted || a.Granted && within(a.Keys, b.Keys) && within(a.Hosts, b.Hosts)
}

// String is the canonical text, as a profile has it.
func (a AgentSocket) String() string {
	var parts []string
	if len(a.Keys) > 0 {
		parts = append(parts, "keys: ["+strings.Join(quoteAll(a.Keys), ", ")+"]")
	}
	if len(a.Hosts) > 0 {
		parts = append(parts, "hosts: ["+strings.Join(quoteAll(a.Hosts), ", ")+"]")
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

const agentExample = `agent_socket: {keys: ["SHA256:..."], hosts: [github.com]}`

func (r parser) agentSocket(n *strict.Node) {
	f, ok := r.Fields(n, "agent_socket", agentExample, sectionKeys()["agent_socket"])
	if !ok {
		return
	}
	a := AgentSocket{Granted: true}
	list := func(key, example string, read func(string) (string, error), fix string) (out []string) {
		v, ok := f[key]
		if !ok {
			return nil
		}
		for _, item := range r.Strs(v, "agent_socket."+key, example) {
			text, err := read(item.Text)
			if err != nil {
				r.Add(item.Pos, item.Text, err.Error(), fix)
				continue
			}
			out = append(out, text)
		}
		if len(out) > MaxAgentList {
			r.Add(v.Pos, key, fmt.Sprintf("agent_socket.%s has more than %d", key, MaxAgentList), "list fewer")
		}
		slices.Sort(out)
		return slices.Compact(out)
	}
	a.Keys = list("keys", `["SHA256:..."]`, fingerprint, "`ssh-add -l` shows the fingerprints of your keys")
	a.Hosts = list("hosts", "[github.com]", hostPort, "write a host as your ssh knows it, with :PORT if that is not 22")
	if v, ok := f["ask"]; ok {
		if ask, ok := r.Flag(v, "agent_socket.ask"); ok && ask {
			r.Unsupported(v.Pos, v.Text, "agent_socket.ask")
		}
	}
	_, set := r.p.Env.Set[AgentVariable]
	if set || slices.Contains(r.p.Env.Pass, AgentVariable) {
		r.Add(n.Pos, "", AgentVariable+" is set by agent_socket and by env", "remove it from env")
	}
	r.p.Agent = a
}

// AgentVariable is where programs look for the agent's socket.
const AgentVariable = "SSH_AUTH_SOCK"

// fingerprint accepts what ssh-add -l shows.
func fingerprint(s string) (string, error) {
	raw, ok := strings.CutPrefix(s, "SHA256:")
	sum, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(raw, "="))
	if !ok || err != nil || len(sum) != 32 {
		return "", fmt.Errorf("%q is no fingerprint of a key", s)
	}
	return "SHA256:" + base64.RawStdEncoding.EncodeToString(sum), nil
}

// hostPort is a name or an address, normalised, with its port.
func hostPort(s string) (string, error) {
	host, port := s, "22"
	if h, p, err := net.SplitHostPort(s); err == nil {
		host, port = h, p
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || strconv.FormatUint(n, 10) != port {
		return "", fmt.Errorf("%q has no port between 1 and 65535", s)
	}
	if a, err := netip.ParseAddr(host); err == nil {
		return net.JoinHostPort(a.Unmap().WithZone("").String(), port), nil
	}
	h, err := name.Host(host)
	if err != nil {
		return "", fmt.Errorf("%q is no host: %w", s, err)
	}
	return net.JoinHostPort(h, port), nil
}
