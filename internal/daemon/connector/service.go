package connector

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"connectrpc.com/connect"

	connectorv1 "skep.dev/skep/api/connector/v1"
	"skep.dev/skep/api/connector/v1/connectorv1connect"
	"skep.dev/skep/internal/strict"
)

const (
	maxCall  = 64 << 20 // bytes of one call
	atOnce   = 8        // of a batch
	headTime = 10 * time.Second
)

// Handler serves the connector API (B210). Who may call is the socket's mode to say.
func (c *Connector) Handler() http.Handler {
	_, h := connectorv1connect.NewConnectorServiceHandler(service{c}, connect.WithReadMaxBytes(maxCall))
	return h
}

// Server serves Handler with bounds of its own.
func (c *Connector) Server() *http.Server {
	return &http.Server{Handler: c.Handler(), ReadHeaderTimeout: headTime}
}

type service struct{ c *Connector }

func (s service) Attach(ctx context.Context, q *connect.Request[connectorv1.AttachRequest]) (*connect.Response[connectorv1.AttachResponse], error) {
	a, err := s.attach(ctx, q.Msg)
	if err != nil {
		return nil, coded(err)
	}
	return connect.NewResponse(a), nil
}

func (s service) attach(ctx context.Context, q *connectorv1.AttachRequest) (*connectorv1.AttachResponse, error) {
	name := q.GetName()
	if name == "" {
		name = "bundle"
	}
	a, err := s.c.Attach(ctx, name, q.GetBundle(), Life{Generation: q.GetGeneration(), Slice: q.PoolSlice})
	if err != nil {
		return nil, err
	}
	return &connectorv1.AttachResponse{AgentId: a.Agent, EgressSocket: a.Egress, IngressSocket: a.Ingress, Warnings: a.Warnings, CredentialExpiryUnix: unix(a.Expiry), Authority: a.Authority, Placeholders: a.Placeholders}, nil
}

func (s service) AttachBatch(ctx context.Context, q *connect.Request[connectorv1.AttachBatchRequest]) (*connect.Response[connectorv1.AttachBatchResponse], error) {
	all := q.Msg.GetBundles()
	if len(all) > MaxBatch {
		return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("a batch of %d bundles; at most %d are attached at once", len(all), MaxBatch))
	}
	out := make([]*connectorv1.AttachResponse, len(all))
	turn := make(chan struct{}, atOnce)
	var wait sync.WaitGroup
	for i, one := range all {
		turn <- struct{}{}
		wait.Go(func() {
			defer func() { <-turn }()
			a, err := s.attach(ctx, one)
			if err != nil {
				a = &connectorv1.AttachResponse{Error: err.Error()}
			}
			out[i] = a
		})
	}
	wait.Wait()
	return connect.NewResponse(&connectorv1.AttachBatchResponse{Results: out}), nil
}

func (s service) Detach(ctx context.Context, q *connect.Request[connectorv1.DetachRequest]) (*connect.Response[connectorv1.DetachResponse], error) {
	if err := s.c.Detach(ctx, q.Msg.GetAgentId()); err != nil {
		return nil, coded(err)
	}
	return connect.NewResponse(&connectorv1.DetachResponse{}), nil
}

func (s service) Refresh(ctx context.Context, q *connect.Request[connectorv1.RefreshRequest]) (*connect.Response[connectorv1.RefreshResponse], error) {
	expiry, err := s.c.Refresh(ctx, q.Msg.GetAgentId(), q.Msg.GetCredentialPath())
	if err != nil {
		return nil, coded(err)
	}
	return connect.NewResponse(&connectorv1.RefreshResponse{CredentialExpiryUnix: unix(expiry)}), nil
}

func (s service) Status(ctx context.Context, q *connect.Request[connectorv1.StatusRequest]) (*connect.Response[connectorv1.StatusResponse], error) {
	all, err := s.c.Status(ctx, q.Msg.GetAgentId())
	if err != nil {
		return nil, coded(err)
	}
	out := &connectorv1.StatusResponse{}
	for _, a := range all {
		out.Agents = append(out.Agents, &connectorv1.AgentStatus{
			AgentId: a.Agent, ExternalId: a.ExternalID, EgressSocket: a.Egress, IngressSocket: a.Ingress, Advertised: a.Advertised, Generation: a.Generation, PolicyVersion: a.Policy,
			Verified: a.Verified, CredentialExpiryUnix: unix(a.Expiry), OpenFlows: uint64(a.Flows), Denials: a.Denials, Error: a.Fault,
		})
	}
	return connect.NewResponse(out), nil
}

// unix is seconds, 0 for no time.
func unix(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.Unix()
}

// coded gives an error the status by which a caller knows whether to try again.
func coded(err error) error {
	var faults strict.Faults
	switch {
	case errors.As(err, &faults):
		return connect.NewError(connect.CodeInvalidArgument, err)
	case errors.Is(err, ErrUnknown):
		return connect.NewError(connect.CodeNotFound, err)
	case errors.Is(err, ErrClosed):
		return connect.NewError(connect.CodeUnavailable, err)
	}
	return connect.NewError(connect.CodeFailedPrecondition, err)
}
