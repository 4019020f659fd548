package secret

import (
	"fmt"
	"slices"
	"strings"

	"skep.dev/skep/internal/tunnel"
)

// Kind is a sort of place in a request. The zero Kind is none.
type Kind uint8

// Bearer and Basic are in Authorization. Query, JSON, Form and WS, the text messages of a
// WebSocket, are by opt-in: they have a value where it is written down more often (B121).
const (
	Bearer Kind = iota + 1
	Basic
	Header
	Query
	JSON
	Form
	WS
)

// Place is where in a request a value may stand.
type Place struct {
	Kind Kind
	Name string // of the header, in lower case, or of the parameter, member or field
}

// String is what ParsePlace takes.
func (p Place) String() string {
	word := ""
	if int(p.Kind) < len(kinds()) {
		word = kinds()[p.Kind]
	}
	if p.Name != "" {
		word += ":" + p.Name
	}
	return word
}

func kinds() []string {
	return []string{"", "bearer", "basic", "header", "query", "json", "form", "ws"}
}

// ParsePlace reads one word of `as`.
func ParsePlace(s string) (Place, error) {
	word, of, named := strings.Cut(s, ":")
	kind := Kind(max(0, slices.Index(kinds(), word)))
	switch {
	case word == "sigv4" || word == "signature" || word == "mtls" || word == "client-certificate":
		return Place{}, fmt.Errorf("%q is not supported: a request is not signed, and no certificate is shown, for a cell", word)
	case kind == 0:
		return Place{}, fmt.Errorf("place %q: want bearer, basic, header:NAME, query:PARAM, json:FIELD, form:FIELD or ws", s)
	case (kind < Header || kind == WS) && named:
		return Place{}, fmt.Errorf("place %q: %s takes no name", s, word)
	case kind < Header, kind == WS:
		return Place{Kind: kind}, nil
	case kind == Header:
		of = strings.ToLower(of)
		if !tunnel.IsToken(of) || framing(of) {
			return Place{}, fmt.Errorf("place %q: want the name of a header that says nothing about the connection or the length", s)
		}
	case of == "" || len(of) > 64 || strings.Trim(of, letters+digits+"_-") != "":
		return Place{}, fmt.Errorf("place %q: want 1 to 64 letters, digits, _ and - behind the colon", s)
	}
	return Place{Kind: kind, Name: of}, nil
}

// framing tells the headers by which a server finds where a request ends and whom it is for.
func framing(header string) bool {
	switch header {
	case "host", "content-length", "transfer-encoding", "content-encoding", "content-type", "connection", "upgrade", "te", "trailer",
		"keep-alive", "expect", "http2-settings", "range":
		return true
	}
	return strings.HasPrefix(header, "proxy-") || strings.HasPrefix(header, "sec-")
}
