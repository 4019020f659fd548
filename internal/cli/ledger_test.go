package cli

import (
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"connectrpc.com/connect"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/api/skep/v1/skepv1connect"
	"skep.dev/skep/internal/ledger"
	"skep.dev/skep/internal/ledger/kind"
	"skep.dev/skep/internal/ledger/verify"
)

// sealer is a skepd that writes the seals that are due when it is asked.
type sealer struct {
	skepv1connect.UnimplementedSkepHandler
	ledger *ledger.Ledger
	due    []string
}

func (s *sealer) LedgerSeal(context.Context, *connect.Request[skepv1.LedgerSealRequest]) (*connect.Response[skepv1.LedgerSealResponse], error) {
	for _, cell := range s.due {
		if err := s.ledger.EndCell(cell); err != nil {
			return nil, err
		}
	}
	return connect.NewResponse(&skepv1.LedgerSealResponse{}), nil
}

// still is a clock that stands: no seal is written because time has passed.
type still struct{}

func (still) Now() time.Time                                { return time.Now() }
func (still) AfterFunc(time.Duration, func()) (stop func()) { return func() {} }

// A seal that is on its way is waited for; without the skepd that writes it, and for a cell
// that runs, the record is told as it stands.
func TestVerifyWaitsForSealsThatAreDue(t *testing.T) {
	a, _, errs := app(t)
	p, err := a.places()
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{p.State, p.Run} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	l, err := ledger.Open(filepath.Join(p.State, "ledger"), ledger.Options{Keys: filepath.Join(p.State, "keys"), Clock: still{}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	for _, cell := range []string{"ended", "running"} {
		if _, err := l.Append(t.Context(), ledger.Entry{Cell: cell, Body: &kind.Note{By: cell}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.EndCell("running"); err != nil { // as far as it has come
		t.Fatal(err)
	}
	prove := func(want verify.Status) {
		t.Helper()
		if code := a.Run(t.Context(), []string{"ledger", "verify"}); code != int(want) {
			t.Errorf("status %d, want %d\n%s", code, want, errs)
		}
	}
	prove(verify.UnsignedTail)
	s := &sealer{ledger: l, due: []string{"ended"}}
	listener, err := net.Listen("unix", filepath.Join(p.Run, "api.sock"))
	if err != nil {
		t.Fatal(err)
	}
	_, handler := skepv1connect.NewSkepHandler(s)
	server := &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(listener) }()
	defer func() { _ = server.Close() }()
	prove(verify.Valid)
	if _, err := l.Append(t.Context(), ledger.Entry{Cell: "running", Body: &kind.Note{By: "running"}}); err != nil {
		t.Fatal(err)
	}
	prove(verify.UnsignedTail)
}
