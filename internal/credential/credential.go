// Package credential judges the credentials by which a platform vouches for an agent: a
// JWT of one issuer, for one audience (boundary.md, B212).
//
// Its laws:
//   - Issuer and audience are the operator's; nothing of a credential selects who is
//     believed.
//   - A credential holds for one subject, compared byte for byte, and until it expires.
//   - No error holds any of a credential's text.
package credential

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
)

const (
	askTime  = 10 * time.Second // for the issuer's answer
	maxToken = 16 << 10         // bytes of a credential
)

// Why a credential is refused.
var (
	ErrInvalid = errors.New("the credential was not issued for this audience by the issuer, or has expired")
	ErrSubject = errors.New("the credential is another subject's")
	ErrSize    = errors.New("the credential is empty or larger than 16 KiB")
)

// Verifier believes one issuer about one audience. The zero value believes nobody.
type Verifier struct {
	verifier *oidc.IDTokenVerifier
	client   *http.Client
	now      func() time.Time
}

// Discover asks the issuer where its keys are. The client is the one door to it, then
// and later.
func Discover(ctx context.Context, client *http.Client, issuer, audience string) (*Verifier, error) {
	u, err := url.Parse(issuer)
	switch {
	case err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return nil, fmt.Errorf("the issuer %q is no https URL", issuer)
	case audience == "":
		return nil, errors.New("the audience is empty")
	}
	v := &Verifier{client: client, now: time.Now}
	asking, cancel := context.WithTimeout(oidc.ClientContext(ctx, client), askTime)
	defer cancel()
	provider, err := oidc.NewProvider(asking, issuer)
	if err != nil {
		return nil, fmt.Errorf("discover the issuer %s: %w", issuer, err)
	}
	v.verifier = provider.VerifierContext(oidc.ClientContext(context.WithoutCancel(ctx), client), &oidc.Config{ClientID: audience, Now: func() time.Time { return v.now() }})
	return v, nil
}

// Verify says until when token vouches for subject. White space around it is the file's.
func (v *Verifier) Verify(ctx context.Context, token, subject string) (time.Time, error) {
	token = strings.TrimSpace(token)
	switch {
	case v == nil || v.verifier == nil:
		return time.Time{}, errors.New("no issuer is believed")
	case token == "" || len(token) > maxToken:
		return time.Time{}, ErrSize
	case subject == "":
		return time.Time{}, ErrSubject
	}
	ctx, cancel := context.WithTimeout(oidc.ClientContext(ctx, v.client), askTime)
	defer cancel()
	// The library's own error may quote the token.
	t, err := v.verifier.Verify(ctx, token)
	switch {
	case ctx.Err() != nil:
		return time.Time{}, fmt.Errorf("ask the issuer for its keys: %w", ctx.Err())
	case err != nil:
		return time.Time{}, ErrInvalid
	case t.Subject != subject:
		return time.Time{}, ErrSubject
	}
	return t.Expiry, nil
}
