package connector

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/internal/boundary/link"
	"skep.dev/skep/internal/bundle"
	"skep.dev/skep/internal/credential"
	"skep.dev/skep/internal/daemon/boxlink"
	"skep.dev/skep/internal/daemon/connector/metrics"
	"skep.dev/skep/internal/policy"
	"skep.dev/skep/internal/tunnel"
)

// MaxBatch bounds the bundles of one call (B150).
const MaxBatch = 256

// Faults that callers tell apart.
var (
	ErrNoVerifier = errors.New("the bundle's credential cannot be judged: the connector was started without --credential-issuer and --credential-audience")
	ErrUnknown    = errors.New("no such agent is attached")
	ErrClosed     = errors.New("the connector is ending")
	ErrNoReverse  = errors.New("its bundle says that it serves: give --agent-ingress-socket, where its side of the reverse channel is")
)

// Connector attaches agents. Its fields are set before the first and not changed.
type Connector struct {
	Box        string                         // path of skep-box
	User       *syscall.Credential            // whom the boxes run as; nil: who we are
	Dir        string                         // where each agent gets a directory with its socket
	Verifier   *credential.Verifier           // nil: only with Unverified, or without bundles
	Unverified bool                           // --insecure-unverified-bundle (B213)
	Ceiling    func() (policy.Ceiling, error) // the operator's, read anew (B87)
	Names      func() *skepv1.ResolverUpdate  // what the host knows now
	Sink       Sink
	Counts     *metrics.Counts // nil: nothing is counted
	Owner      int             // whom each agent's socket belongs to; 0: us
	UDP        bool            // connect-udp is served
	Flows      int             // of one agent; 0: the most there may be
	Head, Idle time.Duration   // 0: the defaults

	// Of agents that serve (B172): where callers come to, empty for a place of each agent's own
	// that no cell sees, and the agent's side of the reverse channel, a path or a name in each
	// agent's directory. Without the second none that serves is attached.
	Ingress, Guest string
	Form           tunnel.Form
	Monitor        uint32 // vsock port that a VM's monitor is asked for; 0 without one

	mu       sync.Mutex
	agents   map[string]*slot
	lineages map[string]*lineage
	attached uint64
	closed   bool
}

// slot is one agent's place. Calls about one agent wait for each other, and for no other's.
type slot struct {
	users int // guarded by Connector.mu

	mu     sync.Mutex
	run    *running // nil while nothing is attached
	digest [sha256.Size]byte
	bundle *bundle.Bundle
	policy policy.Policy
	expiry time.Time // of the credential; zero without one
}

// Attached is what Attach gives.
type Attached struct {
	Agent, Egress string
	Ingress       string    // empty: it serves nothing
	Expiry        time.Time // of the credential; zero without one
	Warnings      []string
	Authority     []byte            // PEM: what the agent's programs are to trust; nil without secrets
	Placeholders  map[string]string // by the names of secrets
}

// use calls f with an agent's slot, alone.
func (c *Connector) use(id string, f func(*slot) error) error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return ErrClosed
	}
	s := c.take(id)
	c.mu.Unlock()
	defer c.give(id, s)
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.ending() { // meanwhile; nobody would end what is begun now
		return ErrClosed
	}
	return f(s)
}

func (c *Connector) ending() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed
}

// take and give keep a slot while somebody uses it or something is attached. mu is held
// for take.
func (c *Connector) take(id string) *slot {
	if c.agents == nil {
		c.agents = map[string]*slot{}
	}
	s := c.agents[id]
	if s == nil {
		s = &slot{}
		c.agents[id] = s
	}
	s.users++
	return s
}

func (c *Connector) give(id string, s *slot) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.users--; s.users == 0 && !s.lives() {
		delete(c.agents, id)
	}
}

// lives reports whether the agent's box is there. It is for one who uses the slot alone.
func (s *slot) lives() bool {
	if s.run == nil {
		return false
	}
	select {
	case <-s.run.gone:
		return false
	default:
		return true
	}
}

// Attach gives the agent of a bundle its boundary. The same bundle again gives the same
// socket; a changed one is a swap of the policy (B210). name is what faults call the bundle.
func (c *Connector) Attach(ctx context.Context, name string, src []byte, life Life) (Attached, error) {
	b, faults := bundle.Parse(name, src)
	if faults != nil {
		return Attached{}, faults.Err()
	}
	return c.AttachAt(ctx, b, sha256.Sum256(src), "", life)
}

// AttachAt attaches a bundle that was read, at a socket of the caller's choice, or with
// an empty one at the agent's own below Dir.
func (c *Connector) AttachAt(ctx context.Context, b *bundle.Bundle, digest [sha256.Size]byte, socket string, life Life) (Attached, error) {
	expiry, err := c.verify(ctx, b, b.Credential)
	if err != nil {
		return Attached{}, err
	}
	p, err := c.policyOf(b)
	if err != nil {
		return Attached{}, err
	}
	out := Attached{Agent: b.Agent, Expiry: expiry, Warnings: slices.Clone(b.Warnings)}
	if socket == "" {
		socket = filepath.Join(c.Dir, b.Agent, egressName)
	}
	err = c.use(b.Agent, func(s *slot) error {
		if err := c.attach(ctx, s, b, p, socket, life, s.digest != digest); err != nil {
			return err
		}
		s.digest, s.bundle, s.policy, s.expiry = digest, b, p, expiry
		out.Egress, out.Ingress, out.Authority, out.Placeholders = s.run.socket, s.run.ingress, s.run.trust, s.run.secrets.Placeholders()
		return nil
	})
	return out, err
}

// attach starts a box, or swaps the policy of the one there is.
func (c *Connector) attach(ctx context.Context, s *slot, b *bundle.Bundle, p policy.Policy, socket string, life Life, changed bool) error {
	if b.Serves != nil && c.Guest == "" {
		return fmt.Errorf("attach %s: %w", b.Agent, ErrNoReverse)
	}
	if !s.lives() {
		if err := c.fresh(b.Agent, life); err != nil {
			return fmt.Errorf("attach %s: %w", b.Agent, err)
		}
		who := c.identityOf(b, life)
		own, err := sources(b.Secrets)
		if err != nil {
			return fmt.Errorf("attach %s: %w", who.Sandbox, err)
		}
		run, err := start(ctx, c, who, socket, p, b.Serves, own)
		if err != nil {
			return fmt.Errorf("attach %s: %w", who.Sandbox, err)
		}
		err = c.Sink.event(run.who, event{Kind: "attached", Policy: p.Version, rules: rulesOf(b)})
		if err == nil { // what is not recorded does not happen
			err = run.published()
		}
		if err != nil {
			run.kill()
			return fmt.Errorf("attach %s: %w", who.Sandbox, err)
		}
		s.run = run
		c.began(b.Agent, life)
		c.Counts.Attached(who.Generation)
		go c.watch(run)
		return nil
	}
	if is := s.run.who; life.Generation != 0 && life.Generation != is.Generation || life.Slice != nil && (is.Slice == nil || *life.Slice != *is.Slice) {
		return fmt.Errorf("attach %s: generation %d is attached; detach it first", b.Agent, is.Generation)
	}
	if !changed && s.policy.Version == p.Version {
		return nil
	}
	if s.bundle.ExternalID != b.ExternalID {
		return fmt.Errorf("attach %s: it is attached as another external_id; detach it first", b.Agent)
	}
	if was, is := s.bundle.Serves, b.Serves; (was == nil) != (is == nil) || was != nil && was.Other(*is) {
		return fmt.Errorf("attach %s: what it serves is fixed before it runs; detach it first", b.Agent)
	}
	if !sameSecrets(s.bundle.Secrets, b.Secrets) {
		return fmt.Errorf("attach %s: %w", b.Agent, errOtherSecrets)
	}
	err := s.run.install(ctx, link.Order{Policy: &p})
	c.Counts.Swap(err == nil)
	if err != nil {
		return fmt.Errorf("change what %s may reach: %w", b.Agent, err)
	}
	return c.Sink.event(s.run.who, event{Kind: "swapped", Policy: p.Version})
}

// rulesOf are a bundle's rules in canonical text.
func rulesOf(b *bundle.Bundle) (all []string) {
	for _, r := range b.Allow {
		all = append(all, r.Net.String())
	}
	return all
}

// owner is whom sockets belong to. Root, who has no need of it, stands for nobody else.
func (c *Connector) owner() int {
	if c.Owner == 0 {
		return Ours
	}
	return c.Owner
}

// own is the directory of a socket below Dir.
func (c *Connector) own(socket string) string {
	if dir := filepath.Dir(socket); c.Dir != "" && filepath.Dir(dir) == filepath.Clean(c.Dir) {
		return dir
	}
	return ""
}

// watch records that a box has ended by itself.
func (c *Connector) watch(r *running) {
	<-r.gone
	if r.ended != nil {
		_ = c.Sink.event(r.who, event{Kind: "died", Why: r.ended.Error()}) // the sink's own fault is told by the next record
	}
}

// identityOf names a new box's cell.
func (c *Connector) identityOf(b *bundle.Bundle, life Life) identity {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.attached = max(c.attached+1, life.Generation)
	who := identity{Sandbox: b.Agent, Agent: b.Agent, ExternalID: b.ExternalID, Generation: life.Generation, Slice: life.Slice, Meta: meta{"verified"}}
	if who.Generation == 0 {
		who.Generation = c.attached
	}
	switch {
	case b.Agent == "":
		who.Sandbox, who.Meta.Identity = "unnamed", "none"
	case c.Unverified:
		who.Meta.Identity = "unverified"
	}
	return who
}

// verify judges the credential at path for the agent of a bundle (B212).
func (c *Connector) verify(ctx context.Context, b *bundle.Bundle, path string) (time.Time, error) {
	switch {
	case b.Agent == "" || c.Unverified:
		return time.Time{}, nil
	case c.Verifier == nil:
		return time.Time{}, ErrNoVerifier
	case b.ExternalID == "" || path == "":
		return time.Time{}, fmt.Errorf("the bundle of %s needs agent.external_id and agent.credential, to be verified", b.Agent)
	}
	token, err := readSmall(path)
	if err != nil {
		return time.Time{}, fmt.Errorf("read the credential of %s: %w", b.Agent, err)
	}
	expiry, err := c.Verifier.Verify(ctx, string(token), b.ExternalID)
	if err != nil {
		return time.Time{}, fmt.Errorf("verify the credential of %s: %w", b.Agent, err)
	}
	return expiry, nil
}

// policyOf is a bundle's rules under the operator's ceiling. Its version is the digest of
// all of it.
func (c *Connector) policyOf(b *bundle.Bundle) (policy.Policy, error) {
	ceiling, err := c.Ceiling()
	if err != nil {
		return policy.Policy{}, err
	}
	p := policy.Policy{Rules: boxlink.Rules(b.Allow), Ceiling: ceiling, Bound: boxlink.Bound(b.Secrets)}
	if s := b.Serves; s != nil {
		p.Ingress = []policy.Ingress{{Port: s.Port, ID: policy.Serves, Line: s.Line, Forward: s.Forward}}
	}
	if err := p.Check(); err != nil {
		return policy.Policy{}, err
	}
	text, err := json.Marshal(p)
	if err != nil {
		return policy.Policy{}, fmt.Errorf("digest a policy: %w", err)
	}
	digest := sha256.Sum256(text)
	p.Version = hex.EncodeToString(digest[:])
	return p, nil
}

// names is what the host knows, in the form of a box.
func (c *Connector) names() link.Names { return namesOf(c.Names()) }

func namesOf(u *skepv1.ResolverUpdate) link.Names {
	n := link.Names{Hosts: map[string][]netip.Addr{}}
	for _, text := range u.GetResolvers() {
		if a, err := netip.ParseAddrPort(text); err == nil {
			n.Resolvers = append(n.Resolvers, a)
		}
	}
	for _, h := range u.GetHosts() {
		n.Hosts[h.GetName()] = addresses(h.GetAddresses())
	}
	n.Own = addresses(u.GetOwnAddresses())
	return n
}

func addresses(texts []string) (out []netip.Addr) {
	for _, text := range texts {
		if a, err := netip.ParseAddr(text); err == nil {
			out = append(out, a.Unmap().WithZone(""))
		}
	}
	return out
}

// maxCredential is more than any credential that is taken.
const maxCredential = 64 << 10

// readSmall reads a file that is not larger than a credential may be.
func readSmall(path string) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is no plain file", path)
	case info.Size() > maxCredential:
		return nil, credential.ErrSize
	}
	return os.ReadFile(path)
}
