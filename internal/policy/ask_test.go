package policy

import (
	"net/netip"
	"testing"
	"time"

	"skep.dev/skep/internal/flow"
)

func asking(t *testing.T) Policy {
	p := setting(t)
	p.Rules = append(p.Rules,
		Rule{ID: "wide", Suffix: "big.test", Ports: ports(t, "443"), TCP: true},
		Rule{ID: "ask", Line: 9, Name: "upload.big.test", Ports: ports(t, "443"), TCP: true, Ask: true, Hold: 30 * time.Second},
		Rule{ID: "same", Name: "upload.big.test", Ports: ports(t, "443"), TCP: true})
	return p
}

// B80, B140: a narrower ask takes away, among equals the ask counts, and nothing opens
// by itself.
func TestAsk(t *testing.T) {
	p := asking(t)
	v := Decide(out("upload.big.test", 443), p)
	if v.Decision != flow.Ask || v.Reason != flow.ApprovalNeeded || v.Hold != 30*time.Second || v.Rule == "wide" || v.Allowed() {
		t.Errorf("%+v", v)
	}
	if v := Decide(out("other.big.test", 443), p); !v.Allowed() {
		t.Errorf("%+v", v)
	}
	if v := Decide(out("nowhere.test", 443), p); v.Decision != flow.Deny {
		t.Errorf("%+v", v)
	}
	p.AskUnlisted = true
	for dest, port := range map[string]uint16{"nowhere.test": 443, "other.big.test": 22, "9.9.9.9": 53} {
		if v := Decide(out(dest, port), p); v.Decision != flow.Ask {
			t.Errorf("%s:%d %+v", dest, port, v)
		}
	}
	p.Ceiling.NoFloor = false
	for _, dest := range []string{"x.alt", "100.64.0.9", "169.254.169.254"} { // ours, the pools', the floor's: nobody is asked
		if v := Decide(out(dest, 443), p); v.Decision != flow.Deny {
			t.Errorf("%s %+v", dest, v)
		}
	}
	p.Ceiling = Ceiling{Limits: true}
	if v := Decide(out("nowhere.test", 443), p); v.Decision != flow.Deny || v.AllowWith != NotPermitted {
		t.Errorf("a person is asked for what the operator does not permit: %+v", v)
	}
}

// B143, B144: an answer is as wide as its card, counts only where a person is asked, and
// never beyond the ceiling; said once, it stands for the flow that took it.
func TestAnswers(t *testing.T) {
	p := asking(t)
	p.AskUnlisted = true
	yes := Answer{ID: "a1", Name: "nowhere.test", Port: 443, Transport: flow.TCP, Allow: true}
	p.Answers = []Answer{yes, {ID: "a2", Name: "upload.big.test", Port: 443, Transport: flow.TCP}, {ID: "a3", Addr: netip.MustParseAddr("9.9.9.9"), Port: 53, Transport: flow.TCP, Allow: true}}
	if err := p.Check(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		dest string
		port uint16
		want flow.Decision
		rule string
	}{
		{"nowhere.test", 443, flow.Allow, "a1"}, {"nowhere.test", 80, flow.Ask, ""}, {"a.nowhere.test", 443, flow.Ask, ""},
		{"upload.big.test", 443, flow.Deny, "a2"}, {"9.9.9.9", 53, flow.Allow, "a3"}, {"9.9.9.8", 53, flow.Ask, ""},
	} {
		if v := Decide(out(c.dest, c.port), p); v.Decision != c.want || v.Rule != c.rule && c.rule != "" {
			t.Errorf("%s:%d %+v", c.dest, c.port, v)
		}
	}
	if !Ports("nowhere.test", flow.TCP, p).Has(443) || Ports("nowhere.test", flow.TCP, p).Has(80) || Ports("upload.big.test", flow.TCP, p).Has(443) {
		t.Error("the early gate is not what Decide says")
	}
	if spans := Literals(p, flow.TCP); len(spans) == 0 || spans[len(spans)-1].First.String() == "" {
		t.Errorf("%v", spans)
	}
	q := out("nowhere.test", 443)
	p.Answers[0].Once = true
	if !p.IsOnce("a1") || p.IsOnce("a3") {
		t.Error("which answers are for one flow is not known")
	}
	p.Answers[0].Used = true
	if v := Decide(q, p); v.Decision != flow.Ask || !Stands(q, p, "a1") || Stands(q, p, "other") {
		t.Errorf("once: %+v, stands %v", v, Stands(q, p, "a1"))
	}
	p.Answers[0].Used = false
	p.AskUnlisted = false
	if v := Decide(q, p); v.Allowed() {
		t.Errorf("an answer is no rule: %+v", v)
	}
	p.AskUnlisted, p.Ceiling = true, Ceiling{Deny: []Rule{{ID: "d", Name: "nowhere.test"}}}
	if v := Decide(q, p); v.Decision != flow.Deny {
		t.Errorf("an answer beats the ceiling: %+v", v)
	}
}

func TestBadAnswers(t *testing.T) {
	good := Answer{ID: "a", Name: "a.test", Port: 1, Transport: flow.TCP}
	for what, bad := range map[string]func(*Answer){
		"no id": func(a *Answer) { a.ID = "" }, "no port": func(a *Answer) { a.Port = 0 }, "no destination": func(a *Answer) { a.Name = "" },
		"two": func(a *Answer) { a.Addr = netip.MustParseAddr("9.9.9.9") }, "every name": func(a *Answer) { a.Name = "*" }, "case": func(a *Answer) { a.Name = "A.test" },
		"mapped": func(a *Answer) { a.Name, a.Addr = "", netip.MustParseAddr("::ffff:9.9.9.9") },
	} {
		a := good
		bad(&a)
		if (Policy{Answers: []Answer{a}}).Check() == nil {
			t.Errorf("%s is taken", what)
		}
	}
	if err := (Policy{Answers: make([]Answer, MaxAnswers+1)}).Check(); err == nil {
		t.Error("too many are taken")
	}
	if (Rule{ID: "r", Name: "a.test", Hold: time.Second}).Check() == nil || (Rule{ID: "r", Name: "a.test", Ask: true, Hold: MaxHold + 1}).Check() == nil {
		t.Error("a hold without ask, or too long, is taken")
	}
}

// B13, B140: what a person is asked about, and may wait for, is held in the kernel: exactly
// where a decision says so, whoever was allowed before; what was denied is not. A datagram
// has to reach the box.
func TestHeld(t *testing.T) {
	p := asking(t)
	p.Rules = append(p.Rules,
		Rule{ID: "net", CIDR: netip.MustParsePrefix("93.184.216.0/24"), Ports: ports(t, "443,8000-8010"), TCP: true, UDP: true, Ask: true, Hold: time.Second},
		Rule{ID: "ip", IP: netip.MustParseAddr("9.9.9.9"), Ports: ports(t, "53"), TCP: true, Ask: true, Hold: time.Second},
		Rule{ID: "short", IP: netip.MustParseAddr("9.9.9.8"), Ports: ports(t, "53"), TCP: true, Ask: true},
		Rule{ID: "both", Name: "both.test", Ports: ports(t, "443"), TCP: true, UDP: true, Ask: true, Hold: time.Second})
	if got := HeldPorts("upload.big.test", p).String(); got != "443" {
		t.Errorf("held are %s", got)
	}
	if got := HeldPorts("other.big.test", p); got != nil || Ports("upload.big.test", flow.TCP, p) != nil || HeldPorts("x.test", asking(t)) != nil {
		t.Errorf("held are %s", got)
	}
	if Ports("both.test", flow.TCP, p) != nil || Ports("both.test", flow.UDP, p).String() != "443" {
		t.Error("a datagram that waits does not reach the box, or a connect does")
	}
	held := HeldLiterals(p)
	if len(held) != 2 || held[0].First.String() != "9.9.9.9" || held[1].Last.String() != "93.184.216.255" || held[1].Ports.String() != "443,8000-8010" {
		t.Errorf("%+v", held)
	}
	yes := Answer{ID: "a1", Name: "upload.big.test", Port: 443, Transport: flow.TCP, Allow: true}
	no := Answer{ID: "a2", Addr: netip.MustParseAddr("9.9.9.9"), Port: 53, Transport: flow.TCP}
	p.Answers = []Answer{yes, no}
	if HeldPorts("upload.big.test", p).String() != "443" || Ports("upload.big.test", flow.TCP, p).String() != "443" || len(HeldLiterals(p)) != 1 {
		t.Errorf("%s, %+v", HeldPorts("upload.big.test", p), HeldLiterals(p))
	}
	yes.Allow, p.Answers[0].Allow = false, false
	if got := HeldPorts("upload.big.test", p); got != nil {
		t.Errorf("what was denied is held: %s", got)
	}
}

// B143: of what one flow may open the early gate lets one connect pass, and no range of it.
func TestOnceAnswers(t *testing.T) {
	p := asking(t)
	p.AskUnlisted = true
	once := Answer{ID: "a1", Name: "nowhere.test", Port: 443, Transport: flow.TCP, Allow: true, Once: true}
	addr := Answer{ID: "a2", Addr: netip.MustParseAddr("9.9.9.9"), Port: 53, Transport: flow.TCP, Allow: true, Once: true}
	p.Answers = []Answer{once, addr}
	if got := OnceAnswers(p); len(got) != 2 || len(Literals(p, flow.TCP)) != len(Literals(asking(t), flow.TCP)) || Ports("nowhere.test", flow.TCP, p) != nil {
		t.Errorf("%+v %+v %s", got, Literals(p, flow.TCP), Ports("nowhere.test", flow.TCP, p))
	}
	if v := Decide(out("nowhere.test", 443), p.Without("a1")); v.Decision != flow.Ask || v.AllowWith == "" || p.Answers[0].Used {
		t.Errorf("%+v", v)
	}
	p.Answers[0].Used = true
	if got := OnceAnswers(p); len(got) != 1 || got[0].ID != "a2" {
		t.Errorf("%+v", got)
	}
	p.AskUnlisted = false
	if got := OnceAnswers(p); len(got) != 0 {
		t.Errorf("nobody is asked, and %+v pass", got)
	}
}
