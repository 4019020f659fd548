package streams

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/h2/frame"
)

// Each of many parallel streams is judged by its own head, and what one may carry no
// other has (B127, BS-3, BS-4).
func TestStreamsAreJudgedAlone(t *testing.T) {
	l := begin(t, nil, nil, nil, "bearer")
	authority := func(name string) []string {
		return []string{":method: GET", ":scheme: https", ":authority: " + name, ":path: /"}
	}
	cases := []struct {
		head []string
		want string // in what the destination gets, else the reason
	}{
		{get("/a", "authorization: Bearer "+mark), "authorization: Bearer " + value},
		{get("/a"), ":path: /a"},
		{get("/a", "te: trailers", "cookie: a", "cookie: b"), "cookie: b"},
		{get("/", "cookie: "+mark), "secret-misplaced"},
		{get("/", "authorization: Bearer "+other), "secret-unknown"},
		{get("/denied"), "path-not-allowed"},
		{authority("other.test"), "http-host-mismatch"},
		{append(authority("other.test"), "authorization: Bearer "+mark), "http-host-mismatch"},
		{append(authority("api.test"), "host: other.test"), "authority-mismatch"},
		{[]string{":method: GET", ":scheme: https", ":path: /"}, "missing-host"},
		{[]string{":method: GET", ":scheme: http", ":authority: api.test", ":path: /"}, "malformed-target"},
		{[]string{":method: GET", ":scheme: https", ":authority: api.test", ":path: a"}, "malformed-target"},
		{[]string{":method: GET", ":scheme: https", ":authority: api.test", ":path: /\x01"}, "malformed-header"},
		{[]string{":method: CONNECT", ":authority: api.test:443"}, "method-not-allowed"},
		{get("/", "connection: close"), "malformed-header"},
		{get("/", "transfer-encoding: chunked"), "malformed-header"},
		{get("/", "upgrade: h2c"), "malformed-header"},
		{get("/", "Upper: x"), "malformed-header"},
		{get("/", "te: gzip"), "malformed-header"},
		{get("/", "x: a\r\nauthorization: "+mark), "malformed-header"},
		{get("/", "x: y", ":path: /denied"), "malformed-header"},
		{get("/", ":path: /b"), "malformed-header"},
		{get("/", ":unknown: b"), "malformed-header"},
		{get("/", "content-length: 1", "content-length: 1"), "malformed-header"},
		{get("/", "content-length: +1"), "malformed-header"},
		{get("/"+strings.Repeat("x", 17000), "y: "+strings.Repeat("x", 17000)), "head-too-large"},
	}
	for i, c := range cases {
		l.agent.head(frame.EndStream, uint32(2*i+1), c.head...)
	}
	l.agent.head(frame.EndStream, uint32(2*len(cases)+1), get("/last")...)
	answers := map[uint32]string{}
	for len(answers) < len(cases)-3 {
		f := l.agent.next(frame.Headers)
		answers[f.Stream] = l.agent.fields(f)
	}
	var got []string
	for f := l.up.next(frame.Headers); ; f = l.up.next(frame.Headers) {
		got = append(got, l.up.fields(f))
		if strings.Contains(got[len(got)-1], "/last") {
			break
		}
	}
	for i, c := range cases {
		answer, refused := answers[uint32(2*i+1)]
		switch {
		case refused && !strings.Contains(answer, c.want):
			t.Errorf("%q: %q, want %s", c.head, answer, c.want)
		case !refused && !slices.ContainsFunc(got, func(h string) bool { return strings.Contains(h, c.want) }):
			t.Errorf("%.200q: no %q among %q", c.head, c.want, got)
		}
	}
	if len(got) != 4 || strings.Count(strings.Join(got, ""), value) != 1 || strings.Contains(l.up.said.String(), mark) {
		t.Errorf("the destination got %q", got)
	}
	if why := l.over(); why != flow.SecretMisplaced {
		t.Errorf("the first refusal is %q", why.Token())
	}
}

// A body with a place in it is read whole, however large the window is, and its length
// fixed; one that is too large, misused or not recorded is refused.
func TestWholeBodies(t *testing.T) {
	l := begin(t, nil, []frame.Setting{{ID: frame.SettingWindow, Value: 1000}}, nil, "json:token")
	form := "content-type: application/json"
	body := `{"token":"` + mark + `","pad":"` + strings.Repeat("x", 150<<10) + `"}`
	go func() {
		l.agent.head(0, 1, post(form, fmt.Sprintf("content-length: %d", len(body)), "expect: 100-continue")...)
		l.agent.upload(1, 1000, body)
	}()
	if got := l.agent.fields(l.agent.next(frame.Headers)); got != ":status: 100\n" {
		t.Errorf("%q", got)
	}
	head := l.up.fields(l.up.next(frame.Headers))
	want := strings.Replace(body, mark, value, 1)
	if !strings.Contains(head, fmt.Sprintf("content-length: %d\n", len(want))) || strings.Contains(head, "expect") {
		t.Errorf("%q", head)
	}
	if got := l.up.download(t, 1000, frame.FirstWindow); got != want {
		t.Errorf("%d bytes, want %d", len(got), len(want))
	}
	l.over()

	for want, c := range map[string]struct{ body, form string }{
		"secret-misplaced": {`{"other":"` + mark + `"}`, form}, "secret-too-large": {strings.Repeat(" ", 256<<10+1), form},
	} {
		l := begin(t, nil, nil, nil, "json:token")
		go func() {
			l.agent.head(0, 1, post(c.form)...)
			l.agent.upload(1, frame.FirstWindow, c.body)
		}()
		if got := l.agent.fields(l.agent.next(frame.Headers)); !strings.Contains(got, want) {
			t.Errorf("%s: %q", want, got)
		}
		l.over()
		if l.up.said.Len() > 200 {
			t.Errorf("%s: the destination was sent %q", want, l.up.said.String())
		}
	}
}

// upload sends a body as the windows allow that the other side opens.
func (p *peer) upload(stream uint32, window int, body string) {
	left := map[uint32]int{0: frame.FirstWindow, stream: window}
	for len(body) > 0 {
		n := min(len(body), left[0], left[stream], frame.MaxSize)
		if n == 0 {
			f, ok := <-p.updates
			if !ok {
				return
			}
			by, _ := f.Number()
			left[f.Stream] += int(by)
			continue
		}
		left[0] -= n
		left[stream] -= n
		p.put(frame.Data, 0, stream, []byte(body[:n]))
		body = body[n:]
	}
	p.put(frame.Data, frame.EndStream, stream, nil)
}

// download reads the data of a stream to its end, within the windows that it has opened
// so far, and opens them by as much as it has read.
func (p *peer) download(t tester, window, all int) string {
	var body []byte
	for {
		f := p.next(frame.Data)
		body = append(body, f.Payload...)
		window, all = window-len(f.Payload), all-len(f.Payload)
		if window < 0 || all < 0 {
			t.Errorf("more than the window, by %d and %d", -window, -all)
		}
		if f.Has(frame.EndStream) {
			return string(body)
		}
		if n := len(f.Payload); n > 0 {
			p.write(frame.AppendNumber(frame.AppendNumber(nil, frame.WindowUpdate, 0, uint32(n)), frame.WindowUpdate, f.Stream, uint32(n)))
			window, all = window+n, all+n
		}
	}
}

// An extended CONNECT opens a WebSocket where the destination offers it, and nowhere else.
func TestExtendedConnect(t *testing.T) {
	head := []string{":method: CONNECT", ":protocol: websocket", ":scheme: https", ":authority: api.test", ":path: /chat", "sec-websocket-version: 13", "sec-websocket-extensions: permessage-deflate"}
	l := begin(t, nil, nil, nil, "ws")
	l.agent.head(0, 1, head...)
	if got := l.agent.fields(l.agent.next(frame.Headers)); !strings.Contains(got, "501") {
		t.Errorf("not offered: %q", got)
	}
	l.over()
	l = begin(t, nil, []frame.Setting{{ID: frame.SettingConnect, Value: 1}}, nil, "ws")
	l.agent.head(0, 1, head...)
	if got := l.up.fields(l.up.next(frame.Headers)); !strings.Contains(got, ":protocol: websocket") || strings.Contains(got, "deflate") {
		t.Errorf("%q", got)
	}
	l.up.head(0, 1, ":status: 200")
	if got := l.agent.fields(l.agent.next(frame.Headers)); got != ":status: 200\n" {
		t.Errorf("%q", got)
	}
	text := append([]byte{0x81, 0x80 | byte(len("auth "+mark)), 0, 0, 0, 0}, "auth "+mark...)
	l.agent.put(frame.Data, 0, 1, text[:9])
	l.agent.put(frame.Data, 0, 1, text[9:])
	var got []byte
	for len(got) < 6+len("auth "+value) {
		got = append(got, l.up.next(frame.Data).Payload...)
	}
	for i := range got[6:] {
		got[6+i] ^= got[2+i%4]
	}
	if string(got[6:]) != "auth "+value || <-l.uses != "gh ws " {
		t.Errorf("%q", got)
	}
	l.up.put(frame.Data, 0, 1, append([]byte{0x81, 5}, "hello"...))
	if f := l.agent.next(frame.Data); string(f.Payload) != "\x81\x05hello" {
		t.Errorf("%q", f.Payload)
	}
	l.agent.put(frame.Data, 0, 1, append([]byte{0x82, 0x80 | byte(len(mark)), 0, 0, 0, 0}, mark...))
	if f := l.agent.next(frame.Reset); f.Stream != 1 || l.up.next(frame.Reset).Stream != 1 || <-l.uses != "gh  secret-misplaced" {
		t.Error("a misuse does not end the stream")
	}
	l.over()
}

// What must not go on ends its stream alone; the others do not notice.
func TestStrayData(t *testing.T) {
	l := begin(t, nil, nil, nil, "bearer")
	l.agent.head(0, 1, post()...)
	l.agent.head(0, 3, post()...)
	l.agent.put(frame.Data, 0, 1, []byte(mark[:9]))
	l.agent.put(frame.Data, 0, 3, []byte(mark[:9]))
	l.agent.put(frame.Data, frame.EndStream, 3, []byte(" and on"))
	l.agent.put(frame.Data, frame.Padded, 1, append(append([]byte{200}, mark[9:]...), make([]byte, 200)...))
	if got := l.agent.fields(l.agent.next(frame.Headers)); !strings.Contains(got, "secret-misplaced") {
		t.Errorf("%q", got)
	}
	if f := l.up.next(frame.Reset); f.Stream != 1 {
		t.Errorf("stream %d is reset", f.Stream)
	}
	l.agent.head(0, 5, post()...)
	l.agent.head(frame.EndStream, 5, "x-sum: "+mark)
	if f := l.up.next(frame.Reset); f.Stream != 5 {
		t.Errorf("a trailer: stream %d is reset", f.Stream)
	}
	if why := l.over(); why != flow.SecretMisplaced || strings.Contains(l.up.said.String(), mark[9:]) {
		t.Errorf("%q, and %q has arrived", why.Token(), l.up.said.String())
	}
}

// To a destination that is not verified nothing is sent, and every request is refused.
func TestFailedDestination(t *testing.T) {
	l := begin(t, nil, nil, func(r *Rules) { r.Failed = flow.UpstreamTLSFailed }, "bearer")
	l.agent.head(frame.EndStream, 1, get("/", "authorization: Bearer "+mark)...)
	if got := l.agent.fields(l.agent.next(frame.Headers)); !strings.Contains(got, "upstream-tls-failed") {
		t.Errorf("%q", got)
	}
	_ = l.agent.next(frame.GoAway)
	if why := l.over(); why != flow.UpstreamTLSFailed || l.up.said.Len() > 0 {
		t.Errorf("%q, sent %q", why.Token(), l.up.said.String())
	}
}

// A request carries the flow's id where the policy says so, and none of the agent's own (B84).
func TestFlowIsNamed(t *testing.T) {
	l := begin(t, nil, nil, func(r *Rules) { r.Flow.Name, r.Flow.Value = "x-skep-flow", []byte("id") }, "bearer")
	for id := range uint32(2) {
		l.agent.head(frame.EndStream, 2*id+1, get("/", "x-skep-flow: mine")...)
		if got := l.up.fields(l.up.next(frame.Headers)); strings.Count(got, "x-skep-flow") != 1 || !strings.Contains(got, "x-skep-flow: id\n") {
			t.Errorf("%q", got)
		}
	}
	l.over()
}
