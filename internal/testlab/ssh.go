package testlab

import (
	"crypto/ed25519"
	"errors"
	"io"
	"net"
	"net/netip"
	"os/exec"
	"sync"

	"golang.org/x/crypto/ssh"
)

// Login is one connection that an SSH server has let in.
type Login struct {
	User, Key, Command string // Key: the fingerprint; Command: what it then asked for
}

// SSH is a server that lets users with some keys run programs.
type SSH struct {
	At      netip.AddrPort
	HostKey ssh.PublicKey

	mu     sync.Mutex
	logins []Login
}

// Logins is every login so far.
func (s *SSH) Logins() []Login {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Login(nil), s.logins...)
}

// SSH serves ssh with a host key of its own. A login with one of the fingerprints runs what
// run gives for its command, and forwards what the client sends.
func (l *Lab) SSH(at string, keys []string, run func(command string) *exec.Cmd) *SSH {
	l.t.Helper()
	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		l.t.Fatal(err)
	}
	host, err := ssh.NewSignerFromKey(private)
	if err != nil {
		l.t.Fatal(err)
	}
	s := &SSH{HostKey: host.PublicKey()}
	config := &ssh.ServerConfig{PublicKeyCallback: func(_ ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
		for _, k := range keys {
			if k == ssh.FingerprintSHA256(key) {
				return &ssh.Permissions{Extensions: map[string]string{"key": k}}, nil
			}
		}
		return nil, errors.New("not one of the keys")
	}}
	config.AddHostKey(host)
	s.At = l.Serve(at, func(c net.Conn) { s.serve(c, config, run) })
	return s
}

func (s *SSH) serve(c net.Conn, config *ssh.ServerConfig, run func(string) *exec.Cmd) {
	conn, channels, requests, err := ssh.NewServerConn(c, config)
	if err != nil {
		return
	}
	go ssh.DiscardRequests(requests)
	for channel := range channels {
		if channel.ChannelType() != "session" {
			_ = channel.Reject(ssh.UnknownChannelType, "sessions only")
			continue
		}
		session, asked, err := channel.Accept()
		if err != nil {
			return
		}
		go s.session(Login{User: conn.User(), Key: conn.Permissions.Extensions["key"]}, session, asked, run)
	}
}

func (s *SSH) session(login Login, session ssh.Channel, asked <-chan *ssh.Request, run func(string) *exec.Cmd) {
	defer func() { _ = session.Close() }()
	for r := range asked {
		var command struct{ Text string }
		if r.Type != "exec" || ssh.Unmarshal(r.Payload, &command) != nil {
			if r.WantReply {
				_ = r.Reply(r.Type == "env", nil)
			}
			continue
		}
		login.Command = command.Text
		s.mu.Lock()
		s.logins = append(s.logins, login)
		s.mu.Unlock()
		_ = r.Reply(true, nil)
		status := struct{ Code uint32 }{}
		if p := run(command.Text); p != nil {
			in, err := p.StdinPipe()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(in, session); _ = in.Close() }()
			p.Stdout, p.Stderr = session, session.Stderr()
			if p.Run() != nil {
				status.Code = 1
			}
		}
		_, _ = session.SendRequest("exit-status", false, ssh.Marshal(status))
		return
	}
}
