package flow

import "fmt"

// Reason is a token of the closed set of B63. None belongs to a success.
type Reason uint8

// The reasons in the order of boundary.md, B63.
const (
	None Reason = iota
	MalformedRequestLine
	MalformedHeader
	MissingHost
	DuplicateHost
	MalformedTarget
	MalformedPort
	AuthorityMismatch
	MalformedUpgrade
	MalformedTemplate
	UnsupportedProtocol
	UnsupportedVersion
	ConnectOnly
	HeadTooLarge
	HeadTimeout
	NotOnAllowlist
	PortNotAllowed
	TransportNotAllowed
	UDPDisabled
	MethodNotAllowed
	PathNotAllowed
	PathAmbiguous
	IPNotOnAllowlist
	ResolvedAddressDenied
	ScopedIP
	IdentityUnknown
	PortNotPermitted
	ApprovalNeeded
	ApprovalDenied
	HTTPHostMismatch
	SecretUnknown
	SecretNotBound
	SecretMisplaced
	SecretTooLarge
	SecretUnavailable
	PolicyUnavailable
	RecordUnavailable
	Busy
	RateLimited
	BudgetExhausted
	ResolveFailed
	DialFailed
	UpstreamTLSFailed
	NoProvider
	ProxyFailed
	TLSFailed
	TLSNameMissing
	TLSNameMismatch
	TLSRequired
	ECHRefused
	HTTPRequired
	NoOriginalDestination
	SecretReflected
	IngressUnreachable
	Revoked
	IdleTimeout
	reasons // how many there are
)

// RFC 9209 error types, section 2.3 of the RFC.
const (
	errRequest  = "http_request_error"
	errDenied   = "http_request_denied"
	errIP       = "destination_ip_prohibited"
	errConfig   = "proxy_configuration_error"
	errLimit    = "connection_limit_reached"
	errNoDest   = "destination_unavailable"
	errProtocol = "http_protocol_error"
)

type entry struct {
	token    string
	status   int // 0: never sent, record only
	errors   []string
	sentence string
}

// table is indexed by Reason and never written.
var table = [reasons]entry{
	MalformedRequestLine:  {"malformed-request-line", 400, []string{errRequest}, "malformed request: malformed request line"},
	MalformedHeader:       {"malformed-header", 400, []string{errRequest}, "malformed request: malformed header"},
	MissingHost:           {"missing-host", 400, []string{errRequest}, "malformed request: missing host"},
	DuplicateHost:         {"duplicate-host", 400, []string{errRequest}, "malformed request: duplicate host"},
	MalformedTarget:       {"malformed-target", 400, []string{errRequest}, "malformed request: malformed target"},
	MalformedPort:         {"malformed-port", 400, []string{errRequest}, "malformed request: malformed port"},
	AuthorityMismatch:     {"authority-mismatch", 400, []string{errRequest}, "malformed request: authority mismatch"},
	MalformedUpgrade:      {"malformed-upgrade", 400, []string{errRequest}, "malformed request: malformed upgrade"},
	MalformedTemplate:     {"malformed-template", 400, []string{errRequest}, "malformed request: malformed template"},
	UnsupportedProtocol:   {"unsupported-protocol", 501, []string{errRequest}, "protocol not supported"},
	UnsupportedVersion:    {"unsupported-version", 505, []string{errProtocol}, "HTTP version not supported"},
	ConnectOnly:           {"connect-only", 405, []string{errRequest}, "only CONNECT and connect-udp are served here"},
	HeadTooLarge:          {"head-too-large", 431, []string{errRequest}, "request head too large"},
	HeadTimeout:           {"head-timeout", 408, []string{errRequest}, "request head not complete in time"},
	NotOnAllowlist:        {"not-on-allowlist", 403, []string{errDenied}, "not allowed by policy"},
	PortNotAllowed:        {"port-not-allowed", 403, []string{errDenied}, "port not allowed"},
	TransportNotAllowed:   {"transport-not-allowed", 403, []string{errDenied}, "transport not allowed"},
	UDPDisabled:           {"udp-disabled", 403, []string{errDenied}, "UDP is not enabled"},
	MethodNotAllowed:      {"method-not-allowed", 403, []string{errDenied}, "method not allowed"},
	PathNotAllowed:        {"path-not-allowed", 403, []string{errDenied}, "not allowed by policy"},
	PathAmbiguous:         {"path-ambiguous", 400, []string{errRequest}, "path has dot segments, an encoded slash or a control byte"},
	IPNotOnAllowlist:      {"ip-not-on-allowlist", 403, []string{errIP}, "address not allowed"},
	ResolvedAddressDenied: {"resolved-address-denied", 403, []string{errIP}, "name resolves to an address that is not allowed"},
	ScopedIP:              {"scoped-ip", 403, []string{errIP}, "scoped address"},
	IdentityUnknown:       {"identity-unknown", 403, []string{errDenied}, "unknown identity"},
	PortNotPermitted:      {"port-not-permitted", 403, []string{errDenied}, "ingress port not permitted"},
	ApprovalNeeded:        {"approval-needed", 403, []string{errDenied}, "a person has been asked"},
	ApprovalDenied:        {"approval-denied", 403, []string{errDenied}, "a person said no"},
	HTTPHostMismatch:      {"http-host-mismatch", 421, []string{errDenied}, "Host differs from the name that was authorised"},
	SecretUnknown:         {"secret-unknown", 403, []string{errDenied}, "no such secret"},
	SecretNotBound:        {"secret-not-bound", 403, []string{errDenied}, "secret not for this destination"},
	SecretMisplaced:       {"secret-misplaced", 403, []string{errDenied}, "secret in a place that its rule does not name"},
	SecretTooLarge:        {"secret-too-large", 413, []string{errRequest}, "body too large to fill a secret in"},
	SecretUnavailable:     {"secret-unavailable", 503, []string{errConfig}, "secret not available"},
	PolicyUnavailable:     {"policy-unavailable", 503, []string{errConfig}, "no policy is loaded"},
	RecordUnavailable:     {"record-unavailable", 503, []string{"proxy_internal_error"}, "the record cannot be written"},
	Busy:                  {"busy", 503, []string{errLimit}, "too many connections"},
	RateLimited:           {"rate-limited", 503, []string{errLimit}, "too many requests"},
	BudgetExhausted:       {"budget-exhausted", 503, []string{errLimit}, "budget used up"},
	ResolveFailed:         {"resolve-failed", 502, []string{"dns_error", "dns_timeout"}, "name could not be resolved"},
	DialFailed:            {"dial-failed", 502, []string{errNoDest, "connection_refused", "connection_timeout"}, "destination could not be reached"},
	UpstreamTLSFailed:     {"upstream-tls-failed", 502, []string{"tls_certificate_error", "tls_protocol_error"}, "destination failed TLS verification"},
	NoProvider:            {"no-provider", 502, []string{errNoDest}, "no provider answers"},
	ProxyFailed:           {"proxy-failed", 502, []string{errNoDest}, "the upstream proxy failed"},
	TLSFailed:             {token: "tls-failed"},
	TLSNameMissing:        {token: "tls-name-missing"},
	TLSNameMismatch:       {token: "tls-name-mismatch"},
	TLSRequired:           {token: "tls-required"},
	ECHRefused:            {token: "ech-refused"},
	HTTPRequired:          {token: "http-required"},
	NoOriginalDestination: {token: "no-original-destination"},
	SecretReflected:       {token: "secret-reflected"},
	IngressUnreachable:    {token: "ingress-unreachable"},
	Revoked:               {token: "revoked"},
	IdleTimeout:           {token: "idle-timeout"},
}

// Token is the reason as a word, matching [a-z][a-z0-9-]{0,31}; empty for None.
// A value outside the set reads as policy-unavailable: it must deny.
func (r Reason) Token() string { return r.entry().token }

// String is Token.
func (r Reason) String() string { return r.Token() }

// Sentence is the fixed printable sentence, under 120 bytes; empty where the
// reason is only recorded (B61).
func (r Reason) Sentence() string { return r.entry().sentence }

// Status is the HTTP status, or 0 where the reason is only recorded.
func (r Reason) Status() int { return r.entry().status }

// Errors are the RFC 9209 error types, the default first.
func (r Reason) Errors() []string { return append([]string(nil), r.entry().errors...) }

// Word is the recorded decision of a refusal: "fail" for 408 and 5xx, else "block" (B63).
// An agent that does not listen has refused nothing; its guest answers 502.
func (r Reason) Word() string {
	if s := r.entry().status; s == 408 || s >= 500 || r == IngressUnreachable {
		return "fail"
	}
	return "block"
}

// ProxyStatus is the value of the one Proxy-Status field of an answer (B60).
// detail picks one of Errors; anything else gives the default.
func (r Reason) ProxyStatus(detail string) string {
	e := r.entry()
	if e.status == 0 {
		return ""
	}
	kind := e.errors[0]
	for _, x := range e.errors {
		if x == detail {
			kind = x
		}
	}
	return "skep; error=" + kind + "; reason=" + e.token
}

// ParseReason finds the reason of a token.
func ParseReason(token string) (Reason, error) {
	for r := None + 1; r < reasons; r++ {
		if table[r].token == token {
			return r, nil
		}
	}
	return None, fmt.Errorf("unknown reason %q", token)
}

func (r Reason) entry() entry {
	if r >= reasons {
		r = PolicyUnavailable
	}
	return table[r]
}
