package policy

import (
	"slices"

	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/right/request"
)

// requests are the rules of one list that decide about a destination, where each of them
// admits only some requests: what one admits is admitted (B80, B83).
type requests struct {
	rules     []*Rule
	operators bool // they are the ceiling's
}

// judge is the verdict about one request: an allowed one has no reason.
func (s requests) judge(q flow.Request) flow.Verdict {
	why, nearest := flow.PathNotAllowed, s.rules[0]
	for _, r := range s.rules {
		method := len(r.Methods) == 0 || slices.Contains(r.Methods, q.Inner.Method)
		fault := r.path(q.Inner.Path)
		switch {
		case method && fault == flow.None:
			return flow.Verdict{}
		case method && fault == flow.PathAmbiguous:
			why, nearest = fault, r
		case fault == flow.None && why != flow.PathAmbiguous:
			why, nearest = flow.MethodNotAllowed, r
		}
	}
	v := flow.Verdict{Reason: why, Rule: nearest.ID, Line: nearest.Line, AllowWith: requestLine(q, nearest, why)}
	if s.operators {
		v = flow.Verdict{Reason: why, AllowWith: NotPermitted}
	}
	return v
}

// path is why the rule does not match a path, or None.
func (r *Rule) path(path string) flow.Reason {
	if len(r.Paths) == 0 {
		return flow.None
	}
	switch kind := request.KindOfPath(path); {
	case kind == request.AmbiguousPath, kind == request.SlashedPath && !r.EncodedSlash:
		return flow.PathAmbiguous
	case request.MatchPath(r.Paths, path):
		return flow.None
	}
	return flow.PathNotAllowed
}

// Correlate reports whether a rule that decides about the request has its HTTP requests
// carry the flow's id (B84).
func Correlate(q flow.Request, p Policy) bool {
	_, d := decide(q, p)
	return d.correlate
}
