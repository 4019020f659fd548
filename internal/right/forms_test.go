package right

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"testing"
)

// checkForms: text and JSON read back to the same value (R1).
func checkForms[T fmt.Stringer](t *testing.T, parse func(string) (T, error), texts ...string) {
	t.Helper()
	for _, text := range texts {
		v, err := parse(text)
		if err != nil {
			t.Error(err)
			continue
		}
		data, err := json.Marshal(v)
		if err != nil {
			t.Error(err)
			continue
		}
		var back T
		if err := json.Unmarshal(data, &back); err != nil {
			t.Errorf("%q as JSON %s: %v", text, data, err)
		}
		if !reflect.DeepEqual(v, back) || back.String() != text {
			t.Errorf("%q comes back as %q through %s", text, back.String(), data)
		}
	}
}

func TestForms(t *testing.T) {
	checkForms(t, ParsePath, "rx /usr", "rwx /home/ada/a b", "- /home/ada/.ssh", "r /")
	checkForms(t, ParseExec, "/usr/bin/make", "/usr/lib/go/bin/*", "/*")
	checkForms(t, ParseNet,
		"name=proxy.example.org ports=443 transports=tcp",
		"name=* ports=1-24,26-464,466-586,588-65535 transports=tcp,udp",
		"suffix=*.example.org depth=2 ports=443,8000-8010 transports=tcp ask=true",
		"name=api.example.org ports=443 transports=tcp methods=GET,POST paths=/repos/* inner=tls",
		"ip=192.0.2.1 ports=25 transports=tcp http=true",
		"ip=192.0.2.1 ports=25 transports=tcp inner=tls",
		"cidr=fd00::/8 ports=53 transports=udp",
		"name=db.example ports=5432 transports=tcp resolve=10.0.1.50,fd00::1")
	checkForms(t, ParseSecret, "", "secret=gh hosts=api.github.com,github.com ports=443 path=/ placements=basic,header:X-Key", "secret=gh hosts=github.com ports=443,8443-8444 path=/me/repo.git placements=basic")
	checkForms(t, ParseModel, "", "roles=coder,gpt-4.1 dialects=chat tokens=0 money=5000000")
	checkForms(t, ParseBudget, "", "cpus=500 cpu_time=1 memory=2 wall=3 pids=4 disk=5 net=6 sandbox=7")
	checkForms(t, ParseSpawn, "", "depth=1 count=4")
	checkForms(t, ParseLedger, "", "read-own,append-note,export")
}

func TestParseRefuses(t *testing.T) {
	parsers := map[string]func(string) error{
		"path":   func(s string) error { _, err := ParsePath(s); return err },
		"exec":   func(s string) error { _, err := ParseExec(s); return err },
		"net":    func(s string) error { _, err := ParseNet(s); return err },
		"secret": func(s string) error { _, err := ParseSecret(s); return err },
		"model":  func(s string) error { _, err := ParseModel(s); return err },
		"budget": func(s string) error { _, err := ParseBudget(s); return err },
		"spawn":  func(s string) error { _, err := ParseSpawn(s); return err },
		"ledger": func(s string) error { _, err := ParseLedger(s); return err },
	}
	for kind, texts := range map[string][]string{
		"path":   {"", "rx", "rx usr", "xr /usr", "rx /usr/", "rx /a/../b", "rx /a\nb", "rx /a\xffb", "rwxx /"},
		"exec":   {"", "make", "/usr/*/x", "/usr/bin/*/*", "/usr/bin/"},
		"secret": {"hosts=a.example", "secret=a hosts=*.example", "secret=a hosts=10.0.0.1", "secret=b secret=a"},
		"model":  {"tokens=1", "roles=b,a", "roles=a tokens=01", "roles=a tokens=-1", "roles=a tokens=9223372036854775808", "roles=a  tokens=1"},
		"budget": {"cpus=", "cpus=1.5", "memory=4GiB", "memory=1 cpus=1", "memory=1 memory=1", "sand=1"},
		"spawn":  {"depth=1", "depth=0 count=4", "count=4 depth=1"},
		"ledger": {"read", "read-own,read-own", "export,read-own", ","},
		"net": {
			"", "ports=443 transports=tcp", "name=a.example ports=443", "name=a.example transports=tcp",
			"name=A.example ports=443 transports=tcp",                     // not canonical
			"name=a.example ip=192.0.2.1 ports=443 transports=tcp",        // two destinations
			"name=192.0.2.1 ports=443 transports=tcp",                     // address as name (B81)
			"name=0x7f.1 ports=443 transports=tcp",                        // address in disguise (B37)
			"name=a.*.example ports=443 transports=tcp",                   // another *
			"suffix=example ports=443 transports=tcp",                     // suffix without *.
			"name=mesh.skep.alt ports=80 transports=tcp",                  // B70
			"name=localhost ports=80 transports=tcp",                      //
			"cidr=10.0.0.1/8 ports=443 transports=tcp",                    // host bits
			"ip=fe80::1%eth0 ports=443 transports=tcp",                    // scoped
			"name=a.example ports=0 transports=tcp",                       //
			"name=a.example ports=443,80 transports=tcp",                  // not sorted
			"name=a.example ports=25-25 transports=tcp",                   // B82: a range is no single entry
			"name=a.example ports=1-65535 transports=tcp",                 // B82: shows what it does not match
			"suffix=*.a.example ports=443 transports=tcp resolve=1.1.1.1", // B84
			"ip=192.0.2.1 ports=443 transports=tcp inner=check",           // B110: it has no name
			"ip=192.0.2.1 ports=80 transports=tcp inner=off http=true",    // B112: and that looks
			"name=a.example ports=80 transports=tcp inner=off http=true",  //
			"name=a.example ports=443 transports=tcp paths=/a*b",
			"name=a.example ports=443 transports=tcp methods=get",
		},
	} {
		for _, text := range texts {
			if parsers[kind](text) == nil {
				t.Errorf("%s %q is accepted", kind, text)
			}
		}
	}
}

func TestJSONIsStrict(t *testing.T) {
	for _, c := range []struct {
		into any
		data string
	}{
		{&Path{}, `{"path":"/usr","access":"rx","extra":1}`},
		{&Path{}, `{"path":"usr","access":"rx"}`},
		{&Net{}, `{"name":"a.example","ports":"443","transports":["tcp"],"inner":"check","hold":1}`},
		{&Net{}, `{"name":"a.example","suffix":"*.a.example","ports":"443","transports":["tcp"],"inner":"check"}`},
		{&Model{}, `{"roles":["a"],"tokens":1.5}`},
		{&Model{}, `{"roles":["a"],"tokens":1e3}`},
		{&Budget{}, `{"memory":-1}`},
		{&Budget{}, `{"mem":1}`},
		{&Spawn{}, `{"depth":-1,"count":1}`},
		{new(Ledger), `["write"]`},
	} {
		if err := json.Unmarshal([]byte(c.data), c.into); err == nil {
			t.Errorf("%T takes %s", c.into, c.data)
		}
	}
}

// Two spellings of one meaning have one text.
func TestCanonical(t *testing.T) {
	m, err := NewModel(Model{Roles: []string{"b", "a", "b"}})
	if err != nil || m.String() != "roles=a,b" {
		t.Errorf("%q, %v", m, err)
	}
	m, err = NewModel(Model{Tokens: AtMost(5)})
	if err != nil || m.String() != "" {
		t.Errorf("a model right without roles is %q, %v", m, err)
	}
	ports, err := NewPorts(PortRange{8001, 8010}, PortRange{443, 443}, PortRange{8000, 8000}, PortRange{20, 30}, PortRange{25, 25})
	if want := "20-24,25,26-30,443,8000-8010"; err != nil || ports.String() != want {
		t.Errorf("ports %s, %v, want %s", ports, err, want)
	}
	d, err := ParseDestIP("::ffff:10.0.0.1")
	if err != nil || d.String() != "ip=10.0.0.1" {
		t.Errorf("mapped address is %s, %v", d, err)
	}
}

// R10: what cannot be held is refused.
func TestAmountsOverflow(t *testing.T) {
	if v, err := Add(math.MaxInt64-1, 1); v != math.MaxInt64 || err != nil {
		t.Error(v, err)
	}
	for _, f := range []func() (int64, error){
		func() (int64, error) { return Add(math.MaxInt64, 1) },
		func() (int64, error) { return Add(-1, 1) },
		func() (int64, error) { return Mul(math.MaxInt64/2+1, 2) },
		func() (int64, error) { return Mul(2, -1) },
	} {
		if v, err := f(); !errors.Is(err, ErrOverflow) || v != 0 {
			t.Error(v, err)
		}
	}
	if v, err := Mul(0, math.MaxInt64); v != 0 || err != nil {
		t.Error(v, err)
	}
}
