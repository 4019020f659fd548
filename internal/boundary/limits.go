package boundary

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"skep.dev/skep/internal/flow/limit"
	"skep.dev/skep/internal/policy"
	"skep.dev/skep/internal/route"
	"skep.dev/skep/internal/tunnel"
)

// The limits of the boundary that exist now (B150). A profile only lowers them.
const (
	OpenFlows      = limit.OpenFlows
	OpenUDP        = 256
	OpenIngress    = 256
	IngressTime    = 10 * time.Second       // until the agent's port was reached
	OwnerPause     = 100 * time.Millisecond // no cell tries again sooner, once its owner has too many
	Itemised       = 200                    // refusals a second with a record of their own
	Coalesce       = 10 * time.Second
	Lag            = 2 * time.Second // of the kernel's log behind its counter, at most
	RecordWait     = 2 * time.Second
	WaitingRecords = 1024
	RecordBatch    = limit.RecordBatch
	ResolveTime    = 10 * time.Second
	DialTime       = 10 * time.Second // per address
	DialAllTime    = 30 * time.Second
	DialStagger    = 250 * time.Millisecond
	IdleTCP        = limit.IdleTCP
	IdleUDP        = 2 * time.Minute
	FirstBytesTime = 10 * time.Second // for a TLS hello or an inner HTTP head, from its first byte
	BoxMemory      = limit.BoxMemory
)

// Limit is one row of the published table. Of names the constants that it states, or
// text of the warden; that each limit stands in a row, with its value, is kept by a test
// of the tree's structure.
type Limit struct{ Name, Number, Owner, AtLimit, Of string }

// Limits is every queue, buffer, table and deadline of the native path (B150).
func Limits() []Limit {
	n := func(format string, a ...any) string { return fmt.Sprintf(format, a...) }
	return slices.Concat([]Limit{
		{"open flows", n("%d", OpenFlows), "cell", "ECONNREFUSED, `busy`", "limit.OpenFlows"},
		{"open flows, all cells of one owner", n("%d", limit.OwnerFlows), "owner", "`busy`", "limit.OwnerFlows"},
		{"new flows, all cells of one owner; at once; until the next try", n("%d/s; %d; %s", limit.OwnerNewFlows, limit.OwnerBurst, OwnerPause), "owner", "`rate-limited`; `rate-limited`; ECONNREFUSED", "limit.OwnerNewFlows; limit.OwnerBurst; boundary.OwnerPause"},
		{"kept of those at once for shares; the share of a cell, over the number of cells that try", n("%d; %d/s and %d at once", limit.OwnerKept, limit.OwnerNewFlows/2, limit.OwnerKept/2), "cell", "`rate-limited`", "limit.OwnerKept"},
		{"bytes, both ways together", "`budget.net`, else none", "cell", "flows end, `budget-exhausted`", ""},
		{"lease of bytes: part of what is left, at least, at most", n("1/%d; %d MiB; %d MiB", limit.LeaseParts, limit.MinLease>>20, limit.MaxLease>>20), "cell", "the next lease", "limit.LeaseParts; limit.MinLease; limit.MaxLease"},
		{"idle TCP", n("%s", IdleTCP), "flow", "closed, `idle-timeout`", "limit.IdleTCP"},
		{"resolve; one question; the other family", n("%s; %s; %s", ResolveTime, "3s", "1s"), "flow", "`resolve-failed`; next resolver; left out", "boundary.ResolveTime; internet.tryTime; internet.laterTime"},
		{"answer of a resolver", "65535 B", "flow", "next resolver", "internet.maxReply"},
		{"dial per address; dial in all; between two dials", n("%s; %s; %s", DialTime, DialAllTime, DialStagger), "flow", "next address; `dial-failed`; next address tried beside the first", "boundary.DialTime; boundary.DialAllTime; boundary.DialStagger"},
		{"TLS hello; inner HTTP head; time for either", n("%d KiB; %d KiB; %s", route.MaxHello>>10, route.MaxInnerHead>>10, FirstBytesTime), "flow", "closed; 431; closed", "route.MaxHello; route.MaxInnerHead; boundary.FirstBytesTime"},
		{"an answer of ours: time, what is read beside it; the server's earlier answers", "1s; 64 KiB; 2s", "flow", "closed", "internet.lingerTime; internet.lingerBytes; internet.finishTime; model.lingerTime; model.lingerBytes"},
		{"relay: a piece that is copied; a pipe; a turn; spare pipes", "16 KiB; 1 MiB; 4 MiB; 4", "flow; flow; flow; cell", "spliced; back-pressure; other flows first; made anew", "splicer.smallSize; splicer.pipeSize; splicer.share; splicer.sparePipe"},
		{"rules; answers of people", n("%d; %d", policy.MaxRules, policy.MaxAnswers), "cell", "load error; the oldest are forgotten", "policy.MaxRules; policy.MaxAnswers"},
		{"a hold; held flows; the place of a held connect that asks no more; its refusal in the kernel; until the kernel knows it; connects that are known", n("%s; %d; %s; %s; %s; %d", policy.MaxHold, HeldFlows, "3s", "1m10s", "1s", 1024), "cell", "load error; refused at once; free again; forgotten; held anew; refused", "limit.MaxHold; policy.MaxHold; boundary.HeldFlows; gen.heldFlows; gen.heldSlot; gen.overFor; box.overBy; held.maxKept"},
		{"policy swap: the gate's sets in the kernel; a card asked for again", "1s; 5s", "cell", "refused by the box, or opened by the next question of the name; asked again", "box.swapBy; box.askAgain"},
		{"open cards; a card; once; nobody is asked again", n("%s; %s; %s; %s", "20", "1h0m0s", "10m0s", "10m0s"), "cell", "denied; denied; asked again; asked again", "approval.OpenCards; approval.Patience; approval.OnceFor; approval.NoFor"},
		{"denials kept; drafted requests; long poll; a request's body; its why", n("%d; %s; %s; %s; %s", KeptDenials, "6/min", "1m0s", "4 KiB", "280 characters"), "cell", "oldest goes; 429; returns; 413; 400", "boundary.KeptDenials; desk.PollTime; desk.maxBody; desk.MaxWhy"},
	}, ofSecrets(n), ofTheCell(n), ofTheBox(n), ofTheTunnel(n), ofTheConnector(), ofTheAgentSocket())
}

// ofSecrets is what reading the requests to a bound name may take (section 10).
func ofSecrets(n func(string, ...any) string) []Limit {
	return []Limit{
		{"secrets; ports of one; a changed source is noticed; a box takes values", "64; 64; 1s; 5s", "cell", "load error; load error; the old value until then; it keeps what it has", "connector.secretsEvery"},
		{"flows to names with a secret; what is read whole of all of them", "256; 32 MiB", "cell", "reset, `busy`; 503 `busy`", "intercept.maxCarried; intercept.maxHeld"},
		{"their handshake, each; head of an answer; an answer of ours: time, what is read beside it", "10s; 64 KiB; 1s; 64 KiB", "flow", "`upstream-tls-failed`; closed; closed; closed", "intercept.handshakeTime; intercept.maxAnswerHead; intercept.lingerTime; intercept.lingerBytes"},
		{"body that a secret is filled in; text message of a WebSocket; values in either or in a head", "256 KiB; 64 KiB; 64 KiB", "flow", "413 `secret-too-large`; reset, `secret-too-large`; `secret-too-large`", "secret.MaxBody; secret.MaxText; secret.maxFilled"},
		{"text of a WebSocket that goes on at once", "256 KiB", "flow", "reset, `secret-too-large`", "ws.maxFed"},
		{"HTTP/2 of an agent: streams; what each counts of what is read whole; head as it comes; read; fields; settings in a frame", n("%s; %s; %s; %d KiB; %s; %s", "256", "4 KiB", "32 KiB", route.MaxInnerHead>>10, "256", "32"), "flow", "REFUSED_STREAM; REFUSED_STREAM; closed; 431; 431; closed", "streams.maxStreams; streams.perStream; streams.maxBlock; streams.maxRequest; streams.maxHeadFields; frame.MaxSettings"},
		{"its frames; windows at first; at most; head of an answer", "16 KiB; 65535 B; 2147483647 B; 64 KiB", "flow", "closed; back-pressure; closed; closed", "frame.MaxSize; frame.FirstWindow; frame.MaxWindow; streams.maxAnswerHead"},
		{"its streams taken back or refused, each; frames that carry nothing; settings that nobody acknowledges", "100/s; 1000/s; 16", "flow", "closed", "streams.maxResets; streams.maxIdle; streams.maxUnacked"},
		{"what waits to be written to either side; although; of the window for answers of ours; one of them", "32 KiB; 1 MiB; 4 KiB; 256 B", "flow", "back-pressure; closed; without a sentence; the same", "streams.enough; streams.maxWaiting; streams.ownAnswers; streams.answerBytes"},
		{"until both sides have begun; until the last frames are written", "10s; 10s", "flow", "closed", "streams.meetTime; streams.finishTime"},
		{"a secret: at least; at most; its name", "8 B; 16 KiB; 64 characters", "cell", "load error", "secret.MinValue; secret.MaxValue; secret.maxName"},
		{"certificates of a cell: before they are made; a leaf; one is shown for", "48h0m0s; 24h0m0s; 1h0m0s", "cell", "good for a wrong clock; made anew; made anew", "authority.early; authority.late; authority.reuse"},
	}
}

// ofTheConnector is what attaching agents of other runtimes may take (section 18).
func ofTheConnector() []Limit {
	return []Limit{
		{"message of box or connector; records of one; batches under way; an outcome that could not be written", "4 MiB; 256; 2; tried again after 100ms", "agent", "link ends; link ends; next batch; until the box ends", "link.MaxMessage; boundary.RecordBatch; tunneled.batches; tunneled.tryAgain"},
		{"refusals that were counted are looked at; a box's end of its own; as the connector waits", "1s; 8s; 10s", "agent", "next look; the rest is not recorded; box killed", "tunneled.flushEvery; tunneled.endWithin; connector.endWithin"},
		{"a box's start or change of policy; its answer to Status; until it takes an order", "10s; 2s; 5s", "agent", "Attach fails; Status fails; box killed", "connector.installWithin; connector.askWithin; connector.sendWithin"},
		{"path of a socket; bundle; ids in it", "104 B; 256 KiB; 256 B", "agent", "start error; error; error", "connector.maxPath; bundle.maxID"},
		{"credential; its file; the issuer's answer; a connection to it", "16 KiB; 64 KiB; 10s; 10s", "agent", "refused", "credential.maxToken; connector.maxCredential; credential.askTime; issuer.wholeTime"},
		{"bundles of one call; of them at once; a call; its head", "256; 8; 64 MiB; 10s", "connector", "refused; next; refused; closed", "connector.MaxBatch; connector.maxCall; connector.headTime"},
		{"a record of a connector's with skepd; its return after a replacement; until skepd ends what it has not detached", "30s; 10s; 15s", "connector", "not recorded; agents ended; agents ended", "connector.writeWithin; guests.comeBack; guests.endWithin"},
		{"texts and rules of an agent in the ledger; what a connector has not read", "4096 B; 1000; 64", "connector", "refused; refused; not told again", "guests.maxText; guests.maxRules; guests.maxEvents"},
	}
}

// ofTheAgentSocket is what the use of an ssh-agent may take (L15).
func ofTheAgentSocket() []Limit {
	return []Limit{
		{"ssh-agent: message of a cell; answer of the agent; sessions that a connection is bound to; keys shown; keys of a host", "32 KiB; 256 KiB; 16; 256; 16", "cell", "closed; failure; failure; cut; cut", "sshagent.MaxRequest; sshagent.MaxReply; sshagent.MaxBinds; sshagent.MaxShown; knownhosts.MaxKeys"},
		{"ssh-agent: connections; requests; at once; a message's time; an answer of the agent; refusals of one kind; a message to skepd", "16; 50/s; 100; 10s; 2m0s; one record each 10s; 64 KiB", "cell", "wait; wait; wait; closed; failure for good; counted; cell does not start", "relay.MaxConns; relay.perSecond; relay.burst; relay.MessageTime; relay.AnswerTime; relay.RefusedEvery; sshagent.MaxUse"},
	}
}

// ofTheTunnel is what requests over a socket may take (section 3).
func ofTheTunnel(n func(string, ...any) string) []Limit {
	return []Limit{
		{"tunnel head; fields; time", n("%d KiB; %d; %s", tunnel.MaxHead>>10, tunnel.MaxFields, "15s"), "listener", "431; 431; 408 and close", "tunnel.MaxHead; tunnel.MaxFields; listener.HeadTime"},
		{"interim answers that our own client skips", "8", "flow", "the attempt fails", "tunnel.maxInterim"},
		{"an answer of ours to a tunnel: time, what is read beside it", "1s; 64 KiB", "flow", "closed", "listener.answerTime; listener.lingerBytes; served.answerTime; served.lingerBytes"},
		{"ingress flows; handshake line; reply; time until the agent's port was reached", n("%d; %s; %s; %s", OpenIngress, "64 B", "128 B", IngressTime), "cell; flow; flow; flow", "503; closed; closed; 502", "boundary.OpenIngress; tunnel.maxHandshake; tunnel.maxReply; boundary.IngressTime"},
		{"tunnels without descriptors", "10ms", "listener", "tried again", "route.acceptAgain"},
		{"a probe of the agent's card; the next one; of its answer is read; a connection to the agent's side; why there is none", "2s; 30s; 4 KiB; 5s; 256 B", "agent", "not advertised; asked again; no card; 502; cut", "served.probeWithin; served.ProbeEvery; served.maxStatus; link.dialWithin; link.maxWhy"},
		{"open flows of UDP; idle UDP", n("%d; %s", OpenUDP, IdleUDP), "cell; flow", "`busy`; closed, `idle-timeout`", "boundary.OpenUDP; boundary.IdleUDP"},
		{"UDP payload; capsule; what waits for an agent that does not read; of all flows; overhead of each", n("%d B; %d B; %s; %s; %s", tunnel.MaxPayload, tunnel.MaxCapsule, "1 MiB", "64 MiB", "64 B"), "flow; flow; flow; cell; flow", "dropped; stream closed; oldest dropped; oldest dropped; counted in it", "tunnel.MaxPayload; datagram.MaxPayload; tunnel.MaxCapsule; datagram.MaxQueue; datagram.MaxQueued; datagram.perPayload"},
	}
}

// ofTheCell is what names and refused connects of a cell may take.
func ofTheCell(n func(string, ...any) string) []Limit {
	return []Limit{
		{"DNS names per family; queries; TCP clients; gate update", n("%d; %d/s; %d; %s", route.DNSNames, route.DNSQueries, route.DNSClients, route.AdmitTime), "cell", "oldest goes; SERVFAIL; refused; SERVFAIL", "route.DNSNames; route.DNSQueries; route.DNSClients; route.AdmitTime"},
		{"sources of datagrams, with what is being refused; payloads that wait to be read: of one, bytes of all", n("%d; %s; %s", 2*OpenUDP, "64", "16 MiB"), "cell; flow; cell", "read later; newest dropped; newest dropped", "datagrams.MaxSources; datagrams.maxWaiting; datagrams.maxBytes"},
		{"where a datagram was going: the kernel's answer; how long it knows; largest payload", "1s; 150s; 65527 B", "flow", "`no-original-destination`; a new flow; cut", "datagrams.askTime; warden/net.c: udp_timeout\", \"150; datagrams.maxPayload"},
		{"DNS queries that wait; idle DNS over TCP", "128; 10s", "cell", "read later; closed", "route.dnsPending; route.dnsIdle"},
		{"refusals itemised; coalescing", n("%d/s; %s", Itemised, Coalesce), "cell", "counted, not itemised", "boundary.Itemised; boundary.Coalesce"},
		{"refusals that the kernel logs; at once; its buffer", "200/s; 50; 1 MiB", "cell", "counted, not itemised", "gen.loggedPerSecond; gen.loggedBurst; warden/net.c: big = 1 << 20"},
		{"kernel's log behind its counter; at the end; counter asked; each", n("%s; %s; %s; %s", Lag, "200ms", "1s", "1s"), "cell", "counted, not itemised", "boundary.Lag; box.lastLog; box.counterBy; box.flushEvery"},
		{"connects that wait to be accepted; without descriptors", "1024; 10ms", "cell", "the kernel's own SYN retransmission; tried again", "warden/net.c: listen(s, 1024); route.acceptAgain"},
		{"the gate shut or opened; tried again", n("%s; %s", "1s", doorAgain), "cell", "tried again; refused by the box", "box.doorBy; boundary.doorAgain"},
	}
}

// ofTheBox is what box and skepd hold for each other.
func ofTheBox(n func(string, ...any) string) []Limit {
	return []Limit{
		{"record acknowledgement; waiting records; batch; batches under way", n("%s; %d; %d; %d", RecordWait, WaitingRecords, RecordBatch, 2), "cell", "`record-unavailable`; `record-unavailable`; next batch; next batch", "boundary.RecordWait; boundary.WaitingRecords; limit.RecordBatch; box.requests"},
		{"outcomes: wait for another record; tried again; waiting", n("%s; %s; %d", "5ms", "100ms", WaitingRecords), "cell", "sent alone; until the box ends; flows keep their places", "box.outcomeWait; box.tryAgain"},
		{"message of skepd; of its reason", "4 MiB; 512 B", "box", "box ends; cut", "box.maxMessage; box.maxReason"},
		{"HTTP/2: head; frame; window; calls to skepd; one call; buffers", "64 KiB; 16 KiB; 65535 B; 16; 4 MiB; 4 KiB and 32 KiB", "box", "connection ends; split; back-pressure; refused; connection ends; back-pressure", "h2.maxHead; frame.MaxSize; frame.FirstWindow; h2.maxCalls; h2.maxRequest; h2.readBuffer; h2.serverBuffer"},
		{"HTTP/2 to skepd: calls whose handlers still run; calls taken back; an answer that nobody reads; kept of the window for answers", "32; 100/s; 10s; 32 KiB", "box", "refused; connection ends; connection ends; streams wait", "h2.maxPlaces; h2.maxResets; h2.readWithin; h2.forAnswers"},
		{"first request of a box; its end", "10s; 8s", "box", "cell does not start; box killed", "box.probeBy; box.endWithin"},
		{"a box handed over: its next message; one of them; what the early gate holds", "5s; 32 KiB; 262144", "box", "the box before serves on", "box.handBy; box.maxLegacy; box.maxSpans"},
		{"ports that a cell's owner forwards; what became of a connection is heard; what is to be forwarded is told; by whom; a reason", "32; 1s; 1s; 64 B; 32 B", "cell; forward; forward; forward; forward", "refused; it ends; refused; refused; it ends", "forwarded.MaxSessions; forwarded.sendWithin; forwarding.first; forwarding.maxPeer; forwarding.maxReason"},
		{"box memory, without the kernel's buffers", n("%d MiB", BoxMemory>>20), "box", "box dies, cell ends with `boundary-died`", "limit.BoxMemory"},
	}
}

// Table prints the limits as Markdown, as docs/limits.md holds them.
func Table() string {
	var b strings.Builder
	b.WriteString("| limit | number | owner | at the limit |\n|---|---|---|---|\n")
	for _, l := range Limits() {
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", l.Name, l.Number, l.Owner, l.AtLimit)
	}
	return b.String()
}
