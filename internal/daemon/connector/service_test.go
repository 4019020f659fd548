package connector

import (
	"context"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"connectrpc.com/connect"

	connectorv1 "skep.dev/skep/api/connector/v1"
	"skep.dev/skep/api/connector/v1/connectorv1connect"
)

// caller is a scheduler on the control socket.
func (l *lab) caller() connectorv1connect.ConnectorServiceClient {
	l.t.Helper()
	path := filepath.Join(l.Dir, "control.sock")
	ln, err := net.Listen("unix", path)
	if err != nil {
		l.t.Fatal(err)
	}
	s := l.Server()
	go func() { _ = s.Serve(ln) }()
	l.t.Cleanup(func() { _ = s.Close() })
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}
	return connectorv1connect.NewConnectorServiceClient(&http.Client{Transport: &http.Transport{DialContext: dial}}, "http://connector")
}

func TestConnectorAPI(t *testing.T) {
	l := newLab(t)
	call := l.caller()
	ctx := t.Context()
	batch, err := call.AttachBatch(ctx, connect.NewRequest(&connectorv1.AttachBatchRequest{Bundles: []*connectorv1.AttachRequest{
		{Bundle: l.bundle("a.example", "ok.test")}, {Bundle: []byte("version: v1\nagent: {id: bad.example, nonsense: 1}\n"), Name: "bad.yaml"}, {Bundle: l.bundle("c.example", "ok.test")},
	}}))
	if err != nil {
		t.Fatal(err)
	}
	r := batch.Msg.GetResults()
	if len(r) != 3 || r[0].GetError() != "" || r[2].GetError() != "" || !strings.HasPrefix(r[1].GetError(), "bad.yaml:2:26: unknown key") {
		t.Fatalf("%v", r)
	}
	if _, status := l.tunnel(r[0].GetEgressSocket(), "ok.test"); status != 200 {
		t.Errorf("status %d", status)
	}
	again, err := call.Attach(ctx, connect.NewRequest(&connectorv1.AttachRequest{Bundle: l.bundle("a.example", "ok.test")}))
	if err != nil || again.Msg.GetEgressSocket() != r[0].GetEgressSocket() {
		t.Errorf("%v, %v", again, err)
	}
	all, err := call.Status(ctx, connect.NewRequest(&connectorv1.StatusRequest{}))
	if err != nil || len(all.Msg.GetAgents()) != 2 || all.Msg.GetAgents()[1].GetAgentId() != "c.example" {
		t.Errorf("%v, %v", all, err)
	}
	if _, err := call.Detach(ctx, connect.NewRequest(&connectorv1.DetachRequest{AgentId: "a.example"})); err != nil {
		t.Error(err)
	}
	for want, err := range map[connect.Code]error{
		connect.CodeNotFound:        second(call.Status(ctx, connect.NewRequest(&connectorv1.StatusRequest{AgentId: "a.example"}))),
		connect.CodeInvalidArgument: second(call.Attach(ctx, connect.NewRequest(&connectorv1.AttachRequest{}))),
	} {
		if connect.CodeOf(err) != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if _, err := call.Refresh(ctx, connect.NewRequest(&connectorv1.RefreshRequest{AgentId: "nobody.example"})); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("%v", err)
	}
	if _, err := call.AttachBatch(ctx, connect.NewRequest(&connectorv1.AttachBatchRequest{Bundles: make([]*connectorv1.AttachRequest, MaxBatch+1)})); connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("%v", err)
	}
}

func second[T any](_ T, err error) error { return err }
