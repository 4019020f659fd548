package cli

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/internal/cli/opened"
	"skep.dev/skep/internal/handover"
	"skep.dev/skep/internal/profile"
	"skep.dev/skep/internal/sshagent/knownhosts"
	"skep.dev/skep/internal/sys"
)

// agent connects to the user's ssh-agent, for the cell's relay, and looks up whom the
// user's ssh takes the profile's hosts for (L15).
func agent(socket string, p *profile.Profile, b *opened.Bundle) ([]*skepv1.HostKey, error) {
	if socket == "" {
		return nil, &fixable{"the profile grants the use of your ssh-agent, and SSH_AUTH_SOCK names none",
			"start one with `eval $(ssh-agent)` and `ssh-add`, or remove agent_socket", errors.New("no ssh-agent")}
	}
	conn, err := sys.ConnectUnix(socket, sys.Stream)
	if err != nil {
		return nil, &fixable{"the profile grants the use of your ssh-agent, and none answers at SSH_AUTH_SOCK",
			"start one with `eval $(ssh-agent)` and `ssh-add`, or remove agent_socket", err}
	}
	b.Add(handover.RoleAgent, "", conn)
	var files [][]byte
	for _, file := range []string{filepath.Join(home(), ".ssh/known_hosts"), filepath.Join(home(), ".ssh/known_hosts2"), "/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2"} {
		if text, err := os.ReadFile(file); err == nil {
			files = append(files, text)
		}
	}
	var keys []*skepv1.HostKey
	for _, at := range p.Agent.Hosts {
		host, port, err := net.SplitHostPort(at)
		if err != nil {
			return nil, fmt.Errorf("read agent_socket.hosts: %w", err)
		}
		for _, key := range knownhosts.Keys(knownhosts.Name(host, port), files...) {
			keys = append(keys, &skepv1.HostKey{Host: at, Key: key})
		}
	}
	return keys, nil
}
