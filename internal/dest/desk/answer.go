package desk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"skep.dev/skep/internal/boundary"
	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/name"
)

// answer is one answer of the desk.
type answer struct {
	status int
	kind   string
	body   []byte
	fields []string // further ones, whole
	noBody bool     // of HEAD
}

// The statuses that the desk answers with; net/http is more than a box should carry.
const (
	ok, accepted                                     = 200, 202
	bad, notFound, notAllowed, tooLarge, misdirected = 400, 404, 405, 413, 421
	tooMany, broken, unavailable                     = 429, 500, 503
)

// text is a status's reason phrase (RFC 9110, 15; RFC 6585, 4).
func text(status int) string {
	switch status {
	case ok:
		return "OK"
	case accepted:
		return "Accepted"
	case notFound:
		return "Not Found"
	case notAllowed:
		return "Method Not Allowed"
	case tooLarge:
		return "Content Too Large"
	case misdirected:
		return "Misdirected Request"
	case tooMany:
		return "Too Many Requests"
	case unavailable:
		return "Service Unavailable"
	case bad:
		return "Bad Request"
	}
	return "Error"
}

const page = `This cell reaches what its profile allows, and nothing else. Ask here why something was refused.

  GET  /denials          what was refused, newest last: destination, reason, and the line of a profile that would permit it
  GET  /denials/ID       one of them
  POST /requests         ask the owner of this cell for one destination: {"name": "api.example", "port": 443, "why": "to fetch the schema"}
                         or {"denial": "ID", "why": "..."}; answers 202 with an id
  GET  /requests/ID      waits up to 60 s for the owner's word: pending, granted, denied

Nobody can grant anything from here.
`

// denial is an entry of /denials (B231).
type denial struct {
	Time        string `json:"ts"`
	ID          string `json:"id"`
	Destination string `json:"destination"`
	Transport   string `json:"transport"`
	Reason      string `json:"reason"`
	Policy      string `json:"policy"`
	Count       uint64 `json:"count"`
	Sentence    string `json:"sentence"`
	Allow       string `json:"allow"`
}

func entry(d boundary.Denial) denial {
	allow := d.AllowWith
	if allow == "" {
		allow = "nothing in a profile"
	}
	return denial{
		Time: d.Time.UTC().Format(time.RFC3339), ID: d.ID, Destination: d.Request.Destination(), Transport: d.Request.Transport.String(),
		Reason: d.Reason.Token(), Policy: d.Policy, Count: d.Count, Sentence: d.Reason.Sentence(), Allow: allow,
	}
}

// answer finds what is at a path.
func (d *Dest) answer(ctx context.Context, method, path string, body []byte) answer {
	isHead := method == "HEAD"
	read := method == "GET" || isHead
	found := func(a answer) answer {
		a.noBody = isHead
		return a
	}
	id, one := strings.CutPrefix(path, "/denials/")
	card, asked := strings.CutPrefix(path, "/requests/")
	switch {
	case path == "/requests" && method == "POST":
		return d.request(ctx, body)
	case path == "/requests":
		return refuse("POST")
	case (path == "/" || path == "/denials" || one || asked) && !read:
		return refuse("GET, HEAD")
	case path == "/":
		return found(answer{status: ok, kind: "text/plain; charset=utf-8", body: []byte(page)})
	case path == "/denials":
		list := []denial{}
		for _, x := range d.Denials.List() {
			list = append(list, entry(x))
		}
		return found(reply(ok, list))
	case one:
		if x, is := d.denial(id); is {
			return found(reply(ok, entry(x)))
		}
	case asked && d.People != nil:
		return found(d.state(ctx, card))
	}
	return found(problem(notFound, "there is nothing here: GET / says what there is"))
}

func (d *Dest) denial(id string) (boundary.Denial, bool) {
	list := d.Denials.List()
	i := slices.IndexFunc(list, func(x boundary.Denial) bool { return x.ID == id })
	if i < 0 {
		return boundary.Denial{}, false
	}
	return list[i], true
}

func (d *Dest) state(ctx context.Context, card string) answer {
	ctx, cancel := context.WithTimeout(ctx, PollTime)
	defer cancel()
	state, err := d.People.State(ctx, card)
	switch {
	case err != nil:
		return problem(unavailable, "nobody can be asked now")
	case state == "":
		return problem(notFound, "this cell asked for nothing of that id")
	}
	return reply(ok, map[string]string{"id": card, "state": state})
}

// request takes a draft to a person.
func (d *Dest) request(ctx context.Context, body []byte) answer {
	if d.People == nil {
		return problem(notFound, "nobody takes requests of this cell")
	}
	wish, err := d.read(body)
	if err != nil {
		return problem(bad, err.Error())
	}
	if !d.turn() {
		a := problem(tooMany, fmt.Sprintf("at most %d requests a minute", DraftRate))
		a.fields = []string{"Retry-After: 10"}
		return a
	}
	card, err := d.People.Draft(ctx, wish.host, wish.port, wish.transport, wish.why)
	switch {
	case err != nil:
		return problem(unavailable, "nobody can be asked now")
	case card == "":
		return problem(tooMany, "too many questions of this cell are open")
	}
	a := reply(accepted, map[string]string{"id": card, "state": "pending"})
	a.fields = []string{"Location: /requests/" + card}
	return a
}

// wish is the body of POST /requests.
type wish struct {
	Name      string `json:"name"`
	Denial    string `json:"denial"`
	Port      uint16 `json:"port"`
	Transport string `json:"transport"`
	Why       string `json:"why"`
}

func (d *Dest) read(body []byte) (draft, error) {
	var w wish
	decoder := json.NewDecoder(strings.NewReader(string(body)))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&w); err != nil || decoder.More() {
		return draft{}, errors.New(`the body is one JSON object such as {"name": "api.example", "port": 443, "why": "to fetch the schema"}`)
	}
	out := draft{transport: flow.TCP, why: w.Why}
	switch {
	case !utf8.ValidString(w.Why) || utf8.RuneCountInString(w.Why) > MaxWhy || strings.ContainsFunc(w.Why, unicode.IsControl):
		return draft{}, fmt.Errorf("why has at most %d characters, in one line", MaxWhy)
	case (w.Name == "") == (w.Denial == ""):
		return draft{}, errors.New("name one of name and denial")
	case w.Denial != "" && (w.Port != 0 || w.Transport != ""):
		return draft{}, errors.New("a denial has its port and transport")
	case w.Denial != "":
		return d.denied(out, w.Denial)
	}
	host, addr, err := name.HostOrAddr(w.Name)
	switch {
	case strings.ContainsAny(w.Name, "*/"):
		return draft{}, errors.New("a request names one destination: no wildcard, no range")
	case err != nil:
		return draft{}, errors.New("name is neither a host name nor an address")
	case addr.IsValid():
		host = addr.String()
	case name.UnderAlt(host):
		return draft{}, errors.New("names under alt are Skep's own")
	}
	switch w.Transport {
	case "", "tcp":
	case "udp":
		out.transport = flow.UDP
	default:
		return draft{}, errors.New("transport is tcp or udp")
	}
	if w.Port == 0 {
		w.Port = 443
	}
	out.host, out.port = host, w.Port
	return out, nil
}

// denied drafts what was refused.
func (d *Dest) denied(out draft, id string) (draft, error) {
	x, is := d.denial(id)
	if !is || x.Request.Port == 0 || x.Request.Transport == flow.Other {
		return draft{}, errors.New("no such denial: GET /denials lists them")
	}
	out.host, out.port, out.transport = x.Request.Name, x.Request.Port, x.Request.Transport
	if out.host == "" {
		out.host = x.Request.Addr.String()
	}
	if name.UnderAlt(out.host) || x.Request.Addr.IsValid() && name.InPools(x.Request.Addr) {
		return draft{}, errors.New("nobody can permit that")
	}
	return out, nil
}

func refuse(allow string) answer {
	a := problem(notAllowed, "only "+allow)
	a.fields = []string{"Allow: " + allow}
	return a
}

func problem(status int, what string) answer {
	return reply(status, map[string]string{"error": what})
}

func reply(status int, v any) answer {
	body, err := json.Marshal(v)
	if err != nil {
		return answer{status: broken, kind: "text/plain; charset=utf-8"}
	}
	return answer{status: status, kind: "application/json", body: append(body, '\n')}
}
