package config

import (
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"

	"skep.dev/skep/internal/name"
	"skep.dev/skep/internal/strict"
)

// Proxy is the HTTP proxy by which all egress goes (B180).
type Proxy struct {
	Host       string // normalised name or plain address
	Port       uint16
	TLS        bool
	CA         string   // a file of certificates that are trusted beside the system's, or ""
	Credential string   // a file with user:password, or ""
	Direct     []string // names without it: exact, or ".x" for all below x
	ByName     bool     // `send: name`
	UDP        bool     // `udp: direct`

	Roots []byte // PEM; with TLS, once loaded
	Auth  string // likewise
}

const proxyExample = `{url: "http://proxy.example:3128"}`

// proxy reads the key proxy of a ceiling.
func proxy(r *strict.Report, n *strict.Node) *Proxy {
	f, ok := r.Fields(n, "proxy", proxyExample, []string{"url", "ca", "credential", "direct", "send", "udp"})
	if !ok {
		return nil
	}
	p := &Proxy{}
	if v, ok := f["url"]; ok {
		p.where(r, v)
	} else {
		r.Add(n.Pos, "", "proxy has no url", proxyExample)
	}
	for key, into := range map[string]*string{"ca": &p.CA, "credential": &p.Credential} {
		if v, ok := f[key]; ok {
			*into = wholePath(r, v, key, "file:/etc/skep/proxy."+key)
		}
	}
	if v, ok := f["ca"]; ok && !p.TLS {
		r.Fault(v, "ca is of a proxy by https", "remove it, or write url: \"https://...\"")
	}
	if v, ok := f["direct"]; ok {
		for _, item := range r.Strs(v, "direct", `[internal.example, "*.corp.example"]`) {
			host, below := strings.CutPrefix(item.Text, "*.")
			plain, err := name.Host(host)
			if err != nil || name.UnderAlt(plain) {
				r.Fault(item, fmt.Sprintf("%q is no name", item.Text), `for example [internal.example, "*.corp.example"]`)
				continue
			}
			if below {
				plain = "." + plain
			}
			p.Direct = append(p.Direct, plain)
		}
	}
	if v, ok := f["send"]; ok {
		word, _ := r.OneOf(v, "send", "address", "name")
		p.ByName = word == "name"
	}
	if v, ok := f["udp"]; ok {
		word, _ := r.OneOf(v, "udp", "refuse", "direct")
		p.UDP = word == "direct"
	}
	return p
}

// where takes http or https with host and port, and nothing else.
func (p *Proxy) where(r *strict.Report, n *strict.Node) {
	s, ok := r.Str(n, "url", "http://proxy.example:3128")
	if !ok {
		return
	}
	u, err := url.Parse(s)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "":
		r.Fault(n, "url has a scheme, a host and a port", "for example http://proxy.example:3128")
		return
	case u.User != nil:
		r.Secret(n.Pos, "url must not hold a password", "write credential: file:PATH")
		return
	}
	p.TLS = u.Scheme == "https"
	port := u.Port()
	if port == "" {
		port = map[bool]string{false: "80", true: "443"}[p.TLS]
	}
	number, err := strconv.ParseUint(port, 10, 16)
	host, addr, bad := name.HostOrAddr(u.Hostname())
	switch {
	case err != nil || number == 0, bad != nil:
		r.Fault(n, "url has a host name or an address, and a port from 1 to 65535", "for example http://proxy.example:3128")
		return
	case addr.IsValid():
		host = addr.String()
	}
	p.Host, p.Port = host, uint16(number)
}

// bundles are where distributions keep the certificates that they trust.
func bundles() []string {
	return []string{"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem"}
}

// SystemRoots are the certificates that this host trusts, PEM; nil where none are found.
func SystemRoots() []byte {
	for _, file := range bundles() {
		if raw, err := os.ReadFile(file); err == nil {
			return raw
		}
	}
	return nil
}

// load reads what the proxy's files hold.
func (p *Proxy) load() error {
	if p.TLS {
		p.Roots = SystemRoots()
	}
	if p.CA != "" {
		raw, err := os.ReadFile(p.CA)
		if err != nil {
			return fmt.Errorf("read the certificates of the proxy: %w", err)
		}
		p.Roots = append(append(p.Roots, '\n'), raw...)
	}
	if p.Credential != "" {
		raw, err := os.ReadFile(p.Credential)
		if err != nil {
			return fmt.Errorf("read the credential of the proxy: %w", err)
		}
		p.Auth = strings.TrimRight(string(raw), "\r\n")
		if user, _, ok := strings.Cut(p.Auth, ":"); !ok || user == "" || strings.ContainsAny(p.Auth, "\r\n") {
			return fmt.Errorf("the credential of the proxy in %s is not one line, user:password", p.Credential)
		}
	}
	return nil
}
