package model

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"skep.dev/skep/internal/ledger/kind"
	"skep.dev/skep/internal/model/openai"
)

// codeUnrecorded is the one refusal that cannot be recorded.
const codeUnrecorded = "record_unavailable"

// ServeHTTP answers one request of the cell. Paths are compared as bytes (B71);
// the query is ignored and goes nowhere.
func (s *session) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !s.begin() {
		return
	}
	defer s.work.Done()
	flow, err := s.checkClaims(r.Header)
	if err != nil {
		s.refuse(r.Context(), w, refusal(http.StatusBadRequest, "malformed_claim", err.Error()))
		return
	}
	path, _, _ := strings.Cut(r.RequestURI, "?")
	switch {
	case path == "/v1/models" && (r.Method == http.MethodGet || r.Method == http.MethodHead):
		s.serveModels(w)
	case path == "/v1/chat/completions" && r.Method == http.MethodPost:
		s.serveChat(w, r, flow)
	default:
		s.refuse(r.Context(), w, refusal(http.StatusForbidden, "path_not_allowed",
			"the gateway serves POST /v1/chat/completions and GET /v1/models"))
	}
}

// checkClaims reads what the box says about the flow. A claim that is malformed,
// doubled or another's is refused, never dropped (B75).
func (s *session) checkClaims(h http.Header) (flow string, err error) {
	agents, flows := h.Values("X-Skep-Agent"), h.Values("X-Skep-Flow")
	switch {
	case len(agents) > 1 || len(flows) > 1:
		return "", errors.New("X-Skep-Agent or X-Skep-Flow is given twice")
	case len(agents) == 0 && s.cell.Agent != "":
		return "", errors.New("X-Skep-Agent is missing")
	case len(agents) == 1 && (agents[0] != "" || s.cell.Agent != ""):
		if err := checkAgent(agents[0]); err != nil {
			return "", fmt.Errorf("X-Skep-Agent: %w", err)
		}
		if s.cell.Agent != "" && agents[0] != s.cell.Agent {
			return "", errors.New("X-Skep-Agent is not this cell's agent")
		}
	}
	if len(flows) == 1 {
		if err := checkFlow(flows[0]); err != nil {
			return "", fmt.Errorf("X-Skep-Flow: %w", err)
		}
		flow = flows[0]
	}
	return flow, nil
}

// serveModels lists the cell's roles that can answer, in the cell's order.
func (s *session) serveModels(w http.ResponseWriter) {
	routes := *s.gateway.routes.Load()
	var roles []string
	for _, role := range s.cell.Roles {
		if len(routes[role]) > 0 && !slices.Contains(roles, role) {
			roles = append(roles, role)
		}
	}
	openai.WriteModels(w, roles)
}

// serveChat reads and checks a call, and hands it on.
func (s *session) serveChat(w http.ResponseWriter, r *http.Request, flow string) {
	if s.running.Add(1) > maxCalls {
		s.running.Add(-1)
		s.refuse(r.Context(), w, refusal(http.StatusServiceUnavailable, "busy", "too many calls of this cell at one time"))
		return
	}
	defer s.running.Add(-1)
	body, unread := s.readBody(r)
	defer func() { s.bodies.Add(-int64(cap(body))) }()
	if unread != nil {
		s.refuse(r.Context(), w, unread)
		return
	}
	req, err := openai.ParseRequest(body)
	if err != nil {
		s.refuse(r.Context(), w, refusal(http.StatusBadRequest, "invalid_request", err.Error()))
		return
	}
	routes := (*s.gateway.routes.Load())[req.Model]
	if !slices.Contains(s.cell.Roles, req.Model) || len(routes) == 0 {
		s.refuse(r.Context(), w, refusal(http.StatusNotFound, "model_not_found", s.unknownRole()))
		return
	}
	c := &call{session: s, flow: flow, request: req, body: body}
	c.serve(r.Context(), w, routes)
}

func (s *session) unknownRole() string {
	if len(s.cell.Roles) == 0 {
		return "this cell has no model role; add `model: {roles: [...]}` to its profile"
	}
	return fmt.Sprintf("the model must be one of this cell's roles that the host has a target for: %s", strings.Join(s.cell.Roles, ", "))
}

// readBody reads a body within the cell's share of memory; what it returns is
// counted in s.bodies with its capacity, also beside a refusal.
func (s *session) readBody(r *http.Request) ([]byte, *openai.Refusal) {
	tooLarge := &openai.Refusal{Status: http.StatusRequestEntityTooLarge, Code: "too_large",
		Message: fmt.Sprintf("the body is longer than %d bytes", openai.MaxBody)}
	if r.ContentLength > openai.MaxBody {
		return nil, tooLarge
	}
	var body []byte
	for {
		if len(body) == cap(body) {
			grown := max(4<<10, 2*cap(body))
			if s.bodies.Add(int64(grown-cap(body))) > maxBodies {
				s.bodies.Add(-int64(grown - cap(body)))
				return body, &openai.Refusal{Status: http.StatusServiceUnavailable, Code: "busy",
					Message: "too many large requests of this cell at one time"}
			}
			bigger := make([]byte, len(body), grown)
			copy(bigger, body)
			body = bigger
		}
		n, err := r.Body.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		switch {
		case len(body) > openai.MaxBody:
			return body, tooLarge
		case err == io.EOF:
			return body, nil
		case err != nil:
			return body, &openai.Refusal{Status: http.StatusBadRequest, Code: "body_incomplete", Message: "the body broke off"}
		}
	}
}

func refusal(status int, code, message string) *openai.Refusal {
	return &openai.Refusal{Status: status, Code: code, Message: message}
}

// refuse answers a call that was not admitted, once its reason is recorded: it has no
// other entry. Where that fails the refusal stays one.
func (s *session) refuse(ctx context.Context, w http.ResponseWriter, why *openai.Refusal) {
	defer why.Respond(w)
	if why.Code == codeUnrecorded {
		return
	}
	g := s.gateway
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleWithin)
	defer cancel()
	e := kind.ModelSettled{
		Call: fmt.Sprintf("%s-%d", g.run, g.calls.Add(1)), Outcome: Refused, Reason: why.Code, Status: uint16(why.Status),
	}
	if err := g.recorder.Settled(ctx, s.cell.ID, e); err != nil {
		g.log.Error("record a refused model call", "cell", s.cell.ID, "reason", why.Code, "error", err)
	}
}
