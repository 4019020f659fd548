package main

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
)

// The box's listeners, above the ephemeral range (B10), and the early gate's log group.
const (
	portTCP  = 65001
	portUDP  = 65002
	portDNS  = 65053
	logGroup = 1

	// The kernel itemises this many refusals a second; the counter has them all (B17).
	loggedPerSecond = 200
	loggedBurst     = 50

	// Connects that wait for a person (B140). A slot is of one socket, by its port, and is
	// free again when its SYN has not come for a while.
	heldFlows = 32
	heldSlot  = 3 * time.Second
	// overFor is longer than a SYN is waited for, where the kernel doubles the time between two.
	overFor = 70 * time.Second
	reg32   = 8 // NFT_REG32_00: registers of four bytes, as concatenations need them

	protoTCP, protoUDP  = 6, 17
	tcpReset            = 1 // NFT_REJECT_TCP_RST
	icmpxUnreachable    = 2 // NFT_REJECT_ICMPX_UNREACH
	icmpxPort           = 1 // NFT_REJECT_ICMPX_PORT_UNREACH
	priorityBeforeNAT   = -110
	nfIPv4, nfIPv6      = 2, 10
	logKeyGroup         = 1 << 1
	logKeyPrefix        = 1 << 2
	logKeySnaplen       = 1 << 3
	logKeyQueue         = 1 << 4
	dynsetUpdate        = 1 // NFT_DYNSET_OP_UPDATE
	dynsetDelete        = 2
	conntrackSeenBefore = expr.CtStateBitESTABLISHED | expr.CtStateBitRELATED
)

func markIPv4() netip.Addr     { return netip.MustParseAddr("100.127.255.252") }
func resolverIPv4() netip.Addr { return netip.MustParseAddr("100.127.255.253") }
func resolverIPv6() netip.Addr { return netip.MustParseAddr("100::ffff:ffff:ffff:fffd") }

// ruleset is the table "skep" as one netfilter transaction. The library is used
// as an encoder: its messages are caught on their way to a kernel that is not there.
func ruleset() (table, error) {
	return caught(func(c *nftables.Conn) error {
		_, err := build(c)
		return err
	})
}

// caught returns the messages of one transaction.
func caught(transaction func(*nftables.Conn) error) (table, error) {
	var caught []netlink.Message
	errCaught := errors.New("caught")
	conn, err := nftables.New(nftables.WithTestDial(func(m []netlink.Message) ([]netlink.Message, error) {
		caught = append(caught, m...)
		return nil, errCaught
	}))
	if err != nil {
		return table{}, err
	}
	if err := transaction(conn); err != nil {
		return table{}, err
	}
	if err := conn.Flush(); err != nil && len(caught) == 0 {
		return table{}, fmt.Errorf("encode the rules: %w", err)
	}
	messages := make([]message, 0, len(caught))
	for _, m := range caught {
		messages = append(messages, message{uint16(m.Header.Type), uint16(m.Header.Flags) &^ (nlmRequest | nlmAck), m.Data})
	}
	// The last message ends the batch; acknowledgements come for what is inside.
	return encode(len(messages)-1, messages...), nil
}

func build(c *nftables.Conn) (map[string]*nftables.Set, error) {
	table := c.AddTable(&nftables.Table{Name: "skep", Family: nftables.TableFamilyINet})
	c.AddObj(&nftables.NamedObj{Table: table, Name: "refused", Type: nftables.ObjTypeCounter, Obj: &expr.Counter{}})
	sets := map[string]*nftables.Set{}
	add := func(set *nftables.Set) error {
		set.Table, set.ID = table, uint32(len(sets)+1)
		sets[set.Name] = set
		return c.AddSet(set, nil)
	}
	for _, s := range [...]struct {
		// tcp, udp: what is allowed; htc: connects that are held; ovr: those of them that are
		// not any more; one: what is allowed for a token.
		of      string
		timeout time.Duration
		tokens  bool
	}{{of: "tcp"}, {of: "udp"}, {of: "htc"}, {of: "ovr", timeout: overFor}, {of: "one", tokens: true}} {
		for i, address := range [...]nftables.SetDatatype{nftables.TypeIPAddr, nftables.TypeIP6Addr} {
			set := &nftables.Set{
				Name: s.of + [...]string{"4", "6"}[i], Interval: !s.tokens, IsMap: s.tokens, Concatenation: true, HasTimeout: s.timeout > 0, Timeout: s.timeout,
				KeyType: nftables.MustConcatSetType(address, nftables.TypeInetService),
			}
			if s.tokens {
				set.DataType = set.KeyType
			}
			if err := add(set); err != nil {
				return nil, err
			}
		}
	}
	// A token, as long as an address with a port: a connect of either family takes it.
	token := &nftables.Set{Name: "tok4", Dynamic: true, Concatenation: true, Size: 1024, KeyType: nftables.MustConcatSetType(nftables.TypeIPAddr, nftables.TypeInetService)}
	if err := add(token); err != nil {
		return nil, err
	}
	slots := &nftables.Set{Name: "slots", Dynamic: true, HasTimeout: true, Timeout: heldSlot, Size: heldFlows, KeyType: nftables.TypeInetService}
	if err := add(slots); err != nil {
		return nil, err
	}
	gate(c, table, sets)
	redirect(c, table)
	return sets, nil
}

// gate is the early gate of B13; the first match wins.
func gate(c *nftables.Conn, table *nftables.Table, sets map[string]*nftables.Set) {
	priority := nftables.ChainPriority(priorityBeforeNAT)
	chain := c.AddChain(&nftables.Chain{
		Name: "gate", Table: table, Type: nftables.ChainTypeFilter,
		Hooknum: nftables.ChainHookOutput, Priority: &priority,
	})
	rule := func(parts ...[]expr.Any) {
		c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: join(parts...)})
	}
	accept := verdict(expr.VerdictAccept)
	turned := c.AddChain(&nftables.Chain{Name: "shut", Table: table})
	holding := c.AddChain(&nftables.Chain{Name: "holding", Table: table})
	waiting := c.AddChain(&nftables.Chain{Name: "waiting", Table: table})
	single := c.AddChain(&nftables.Chain{Name: "single", Table: table})

	// The reset of a refused connection passes this chain too, towards a cell address.
	rule(to4(netip.MustParsePrefix("127.0.0.0/8")), accept)
	rule(to4(netip.PrefixFrom(cellIPv4(), 32)), accept)
	rule(to6(netip.IPv6Loopback()), accept)
	rule(to6(cellIPv6()), accept)
	rule(seenBefore(), accept)
	rule(l4(protoUDP), port(53), accept)
	rule(to4(netip.PrefixFrom(resolverIPv4(), 32)), l4(protoTCP), port(53), accept)
	rule(to6(resolverIPv6()), l4(protoTCP), port(53), accept)

	// What one connect alone may reach is not held, and waits for no room either.
	alone := []expr.Any{&expr.Verdict{Kind: expr.VerdictGoto, Chain: single.Name}}
	rule(family(nfIPv4), l4(protoTCP), leads(sets["one4"], 16, 4), token(sets["tok4"]), alone)
	rule(family(nfIPv6), l4(protoTCP), leads(sets["one6"], 24, 16), token(sets["tok4"]), alone)
	// What was allowed meanwhile is not held any more.
	hold := []expr.Any{&expr.Verdict{Kind: expr.VerdictJump, Chain: holding.Name}}
	rule(family(nfIPv4), l4(protoTCP), listed(sets["htc4"], 16, 4, toPort), unlisted(sets["tcp4"]), hold)
	rule(family(nfIPv6), l4(protoTCP), listed(sets["htc6"], 24, 16, toPort), unlisted(sets["tcp6"]), hold)
	for _, by := range []struct {
		proto byte
		set   string
	}{{protoTCP, "tcp4"}, {protoUDP, "udp4"}} {
		rule(l4(by.proto), shut(sets[by.set]), []expr.Any{&expr.Verdict{Kind: expr.VerdictGoto, Chain: turned.Name}})
	}
	rule(family(nfIPv4), l4(protoTCP), listed(sets["tcp4"], 16, 4, toPort), accept)
	rule(family(nfIPv6), l4(protoTCP), listed(sets["tcp6"], 24, 16, toPort), accept)
	rule(family(nfIPv4), l4(protoUDP), listed(sets["udp4"], 16, 4, toPort), accept)
	rule(family(nfIPv6), l4(protoUDP), listed(sets["udp6"], 24, 16, toPort), accept)

	rule([]expr.Any{&expr.Objref{Type: int(nftables.ObjTypeCounter), Name: "refused"}})
	rule(l4(protoTCP), logged("skep:tcp"))
	rule(l4(protoUDP), logged("skep:udp"))
	rule(notL4(protoTCP), notL4(protoUDP), logged("skep:other"))
	rule(l4(protoTCP), []expr.Any{&expr.Reject{Type: tcpReset}})
	rule([]expr.Any{&expr.Reject{Type: icmpxUnreachable, Code: icmpxPort}})

	// The next connect does not find the token any more, however soon it comes (B143).
	chain = single
	rule(shut(sets["tcp4"]), []expr.Any{&expr.Verdict{Kind: expr.VerdictGoto, Chain: turned.Name}})
	rule(family(nfIPv4), leads(sets["one4"], 16, 4), spent(sets["tok4"]), accept)
	rule(family(nfIPv6), leads(sets["one6"], 24, 16), spent(sets["tok4"]), accept)

	// The client's own SYN, that comes again, is the wait (B13); who finds no slot is refused.
	chain = holding
	back := verdict(expr.VerdictReturn)
	rule(family(nfIPv4), listed(sets["ovr4"], 16, 4, fromPort), back)
	rule(family(nfIPv6), listed(sets["ovr6"], 24, 16, fromPort), back)
	rule(slot(sets["slots"]), []expr.Any{&expr.Verdict{Kind: expr.VerdictGoto, Chain: waiting.Name}})
	chain = waiting
	rule(logged("skep:held"))
	rule(verdict(expr.VerdictDrop))

	chain = turned
	rule([]expr.Any{&expr.Objref{Type: int(nftables.ObjTypeCounter), Name: "refused"}})
	rule(l4(protoTCP), logged("skep:shut"))
	rule(l4(protoUDP), logged("skep:shut-udp"))
	rule(l4(protoTCP), []expr.Any{&expr.Reject{Type: tcpReset}})
	rule([]expr.Any{&expr.Reject{Type: icmpxUnreachable, Code: icmpxPort}})
}

// redirect sends what the gate let pass to the box (B12).
func redirect(c *nftables.Conn, table *nftables.Table) {
	priority := *nftables.ChainPriorityNATDest
	chain := c.AddChain(&nftables.Chain{
		Name: "redirect", Table: table, Type: nftables.ChainTypeNAT,
		Hooknum: nftables.ChainHookOutput, Priority: &priority,
	})
	rule := func(parts ...[]expr.Any) {
		c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: join(parts...)})
	}
	stay := verdict(expr.VerdictAccept)
	rule(to4(netip.MustParsePrefix("127.0.0.0/8")), stay)
	rule(to4(netip.PrefixFrom(cellIPv4(), 32)), stay)
	rule(to6(netip.IPv6Loopback()), stay)
	rule(to6(cellIPv6()), stay)
	rule(l4(protoUDP), port(53), into(portDNS))
	rule(to4(netip.PrefixFrom(resolverIPv4(), 32)), l4(protoTCP), port(53), into(portDNS))
	rule(to6(resolverIPv6()), l4(protoTCP), port(53), into(portDNS))
	rule(l4(protoTCP), into(portTCP))
	rule(l4(protoUDP), into(portUDP))
}

func join(parts ...[]expr.Any) []expr.Any {
	var all []expr.Any
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}

func verdict(kind expr.VerdictKind) []expr.Any { return []expr.Any{&expr.Verdict{Kind: kind}} }

func meta(key expr.MetaKey, op expr.CmpOp, value byte) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: key, Register: 1},
		&expr.Cmp{Op: op, Register: 1, Data: []byte{value}},
	}
}

func family(nf byte) []expr.Any   { return meta(expr.MetaKeyNFPROTO, expr.CmpOpEq, nf) }
func l4(proto byte) []expr.Any    { return meta(expr.MetaKeyL4PROTO, expr.CmpOpEq, proto) }
func notL4(proto byte) []expr.Any { return meta(expr.MetaKeyL4PROTO, expr.CmpOpNeq, proto) }

func seenBefore() []expr.Any {
	mask := binaryutil.NativeEndian.PutUint32(conntrackSeenBefore)
	return []expr.Any{
		&expr.Ct{Key: expr.CtKeySTATE, Register: 1},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: mask, Xor: make([]byte, 4)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: make([]byte, 4)},
	}
}

// Offsets of the destination address in the IPv4 and IPv6 headers.
func to4(p netip.Prefix) []expr.Any {
	mask := make([]byte, 4)
	for i := 0; i < p.Bits(); i++ {
		mask[i/8] |= 0x80 >> (i % 8)
	}
	return append(family(nfIPv4),
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: 16, Len: 4},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: mask, Xor: make([]byte, 4)},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: p.Masked().Addr().AsSlice()})
}

func to6(a netip.Addr) []expr.Any {
	return append(family(nfIPv6),
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: 24, Len: 16},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: a.AsSlice()})
}

func port(p uint16) []expr.Any {
	return []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binaryutil.BigEndian.PutUint16(p)},
	}
}

// Where the two ports stand in the header of TCP and UDP.
const fromPort, toPort = 0, 2

// listed looks (destination address, port) up in a set.
func listed(set *nftables.Set, offset, size, port uint32) []expr.Any {
	return []expr.Any{
		&expr.Payload{DestRegister: reg32, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: size},
		&expr.Payload{DestRegister: reg32 + size/4, Base: expr.PayloadBaseTransportHeader, Offset: port, Len: 2},
		&expr.Lookup{SourceRegister: reg32, SetName: set.Name, SetID: set.ID},
	}
}

// unlisted goes on, behind listed, where another set does not have the same.
func unlisted(set *nftables.Set) []expr.Any {
	return []expr.Any{&expr.Lookup{SourceRegister: reg32, SetName: set.Name, SetID: set.ID, Invert: true}}
}

// leads looks (destination address, port) up in a map, for a token.
func leads(set *nftables.Set, offset, size uint32) []expr.Any {
	found := listed(set, offset, size, toPort)
	found[2] = &expr.Lookup{SourceRegister: reg32, SetName: set.Name, SetID: set.ID, IsDestRegSet: true, DestRegister: reg32 + 8}
	return found
}

// token goes on, behind leads, where the token is there; spent takes it.
func token(set *nftables.Set) []expr.Any {
	return []expr.Any{&expr.Lookup{SourceRegister: reg32 + 8, SetName: set.Name, SetID: set.ID}}
}

func spent(set *nftables.Set) []expr.Any {
	return []expr.Any{&expr.Dynset{SrcRegKey: reg32 + 8, SetName: set.Name, SetID: set.ID, Operation: dynsetDelete}}
}

// slot goes on where the source port has one, or gets one.
func slot(set *nftables.Set) []expr.Any {
	return []expr.Any{
		&expr.Payload{DestRegister: reg32, Base: expr.PayloadBaseTransportHeader, Offset: fromPort, Len: 2},
		&expr.Dynset{SrcRegKey: reg32, SetName: set.Name, SetID: set.ID, Operation: dynsetUpdate, Timeout: heldSlot},
	}
}

// shut matches while the box has the mark in the set, which lets no new flow in: an
// address that is given to no name and to no rule (B51), so that nothing else adds it.
func shut(set *nftables.Set) []expr.Any {
	mark := append(markIPv4().AsSlice(), 0, 1, 0, 0) // port 1, padded as in the set's key
	return []expr.Any{
		&expr.Immediate{Register: 1, Data: mark},
		&expr.Lookup{SourceRegister: reg32, SetName: set.Name, SetID: set.ID}, // where register 1 begins
	}
}

func logged(prefix string) []expr.Any {
	return []expr.Any{
		&expr.Limit{Type: expr.LimitTypePkts, Rate: loggedPerSecond, Unit: expr.LimitTimeSecond, Burst: loggedBurst},
		&expr.Log{
			Key:   logKeyGroup | logKeyPrefix | logKeySnaplen | logKeyQueue,
			Group: logGroup, Snaplen: logCopyRange, QThreshold: 1, Data: []byte(prefix),
		},
	}
}

func into(p uint16) []expr.Any {
	return []expr.Any{
		&expr.Immediate{Register: 1, Data: binaryutil.BigEndian.PutUint16(p)},
		&expr.Redir{RegisterProtoMin: 1, RegisterProtoMax: 1},
	}
}
