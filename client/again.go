package client

import (
	"fmt"
	"net/http"

	"connectrpc.com/connect"
)

// HeaderAgain marks the answer of a skepd that is being replaced: nothing was done, and
// whoever asks again on another connection is answered by the one that takes its place.
const HeaderAgain = "Skep-Again"

// IsAgain tells of a stream's error that skepd was replaced meanwhile: what was followed
// goes on in another call.
func IsAgain(err error) bool { return connect.CodeOf(err) == connect.CodeAborted }

// patient asks again as often as it is told to.
type patient struct{ http.RoundTripper }

func (a patient) RoundTrip(q *http.Request) (*http.Response, error) {
	for {
		r, err := a.RoundTripper.RoundTrip(q)
		if err != nil || r.Header.Get(HeaderAgain) == "" {
			return r, err
		}
		_ = r.Body.Close()
		if q.GetBody == nil {
			return nil, fmt.Errorf("ask %s again: its body cannot be sent twice", q.URL.Path)
		}
		body, err := q.GetBody()
		if err != nil {
			return nil, fmt.Errorf("ask %s again: %w", q.URL.Path, err)
		}
		q = q.Clone(q.Context())
		q.Body = body
	}
}
