package flow

import (
	"net/netip"
	"os"
	"regexp"
	"strings"
	"testing"
)

func TestZeroValuesDeny(t *testing.T) {
	if (Verdict{}).Allowed() || (Verdict{}).Refusal() != PolicyUnavailable {
		t.Error("the zero Verdict must deny as policy-unavailable")
	}
	if (Request{}).Check() == nil {
		t.Error("the zero Request must not be valid")
	}
	if Reason(250).Token() != "policy-unavailable" || Decision(9).String() != "deny" {
		t.Error("values outside a set must read as a refusal")
	}
}

func TestReasonsKeepTheirShape(t *testing.T) {
	token := regexp.MustCompile(`^[a-z][a-z0-9-]{0,31}$`)
	seen := map[string]bool{}
	for r := None + 1; r < reasons; r++ {
		if !token.MatchString(r.Token()) || seen[r.Token()] {
			t.Errorf("token %q of %d is malformed or repeated", r.Token(), r)
		}
		seen[r.Token()] = true
		if back, err := ParseReason(r.Token()); err != nil || back != r {
			t.Errorf("%s does not parse back", r)
		}
		if r.Status() == 0 {
			if r.Sentence() != "" || r.ProxyStatus("") != "" {
				t.Errorf("%s is record only and must have nothing to send", r)
			}
			continue
		}
		if len(r.Sentence()) == 0 || len(r.Sentence()) >= 120 || len(r.Errors()) == 0 {
			t.Errorf("%s: sentence or error missing or too long", r)
		}
		for _, c := range []byte(r.Sentence()) {
			if c < 0x20 || c > 0x7e {
				t.Errorf("%s: sentence is not printable ASCII", r)
			}
		}
		if strings.Count(r.ProxyStatus("x\r\ny"), "\n") != 0 || strings.Contains(r.ProxyStatus(`", evil`), "evil") {
			t.Errorf("%s: a detail from outside must not reach the field", r)
		}
	}
	if _, err := ParseReason("malformed-request"); err == nil {
		t.Error("the bare token is understood from others, never ours")
	}
}

func TestReasonWords(t *testing.T) {
	for r, want := range map[Reason]string{
		NotOnAllowlist: "block", HeadTimeout: "fail", DialFailed: "fail", RecordUnavailable: "fail", HeadTooLarge: "block",
		TLSNameMismatch: "block", ResolvedAddressDenied: "block",
	} {
		if r.Word() != want {
			t.Errorf("%s is recorded as %s, want %s", r, r.Word(), want)
		}
	}
	if got := DialFailed.ProxyStatus("connection_refused"); got != "skep; error=connection_refused; reason=dial-failed" {
		t.Error(got)
	}
}

func TestRequestChecks(t *testing.T) {
	ok := Request{Cell: "c", Direction: Out, Wire: Native, Transport: TCP, Port: 443, Name: "ok.test", Count: 1}
	if err := ok.Check(); err != nil {
		t.Fatal(err)
	}
	addr := netip.MustParseAddr("::ffff:1.2.3.4")
	for what, spoil := range map[string]func(*Request){
		"no cell": func(r *Request) { r.Cell = "" }, "no direction": func(r *Request) { r.Direction = 0 },
		"no wire": func(r *Request) { r.Wire = 0 }, "other transport": func(r *Request) { r.Transport = Other },
		"port 0": func(r *Request) { r.Port = 0 }, "neither": func(r *Request) { r.Name = "" },
		"both": func(r *Request) { r.Addr = addr.Unmap() }, "mapped": func(r *Request) { r.Name, r.Addr = "", addr },
		"count 0": func(r *Request) { r.Count = 0 },
	} {
		bad := ok
		spoil(&bad)
		if bad.Check() == nil {
			t.Errorf("%s: must not be valid", what)
		}
	}
}

func TestDestination(t *testing.T) {
	for want, r := range map[string]Request{
		"a.test:80":        {Name: "a.test", Port: 80},
		"1.2.3.4:53":       {Addr: netip.MustParseAddr("1.2.3.4"), Port: 53},
		"[2001:db8::1]:22": {Addr: netip.MustParseAddr("2001:db8::1"), Port: 22},
		"*":                {},
	} {
		if got := r.Destination(); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// TestStandardLibraryOnly keeps the ground level: B2.
func TestStandardLibraryOnly(t *testing.T) {
	files, _ := os.ReadDir(".")
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), ".go") {
			continue
		}
		text, err := os.ReadFile(f.Name())
		if err != nil {
			t.Fatal(err)
		}
		if regexp.MustCompile(`(?m)^\t(_ |[a-z]+ )?"[a-z]+\.[a-z]+/`).Match(text) {
			t.Errorf("%s imports something outside the standard library", f.Name())
		}
	}
}
