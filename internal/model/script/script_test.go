package script

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"skep.dev/skep/internal/model/openai"
)

func parse(t testing.TB, text string) *Target {
	t.Helper()
	s, err := Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return New(s)
}

func request(t testing.TB, body string) *openai.Request {
	t.Helper()
	r, err := openai.ParseRequest([]byte(body))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// ask returns all pieces of an answer, or the refusal's message.
func ask(t testing.TB, target *Target, cell, body string) string {
	t.Helper()
	r := request(t, body)
	a, err := target.Answer(t.Context(), openai.Call{Cell: cell, Role: r.Model, Request: r})
	if err != nil {
		return err.Error()
	}
	var b strings.Builder
	for {
		piece, err := a.Next()
		if err != nil {
			return b.String()
		}
		b.Write(piece)
		b.WriteByte('\n')
	}
}

func TestFaultyScriptsAreRefused(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", "no step"},
		{"- reply: {}", "step 1: reply has neither"},
		{"- reply: {text: a}\n  wen: {}", "[2:"},
		{"- reply: {text: a}\n- {times: -1, reply: {text: a}}", "step 2: times"},
		{"- {chunk: -4, reply: {text: a}}", "chunk"},
		{"- reply: {tool_calls: [{arguments: {}}]}", "no name"},
		{"- reply: {tool_calls: [{name: f, arguments: 3}]}", "arguments of f"},
		{"- reply: {text: a, usage: {input: 0, output: 0}}", "usage"},
	} {
		if _, err := Parse([]byte(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: got %v, want %q", c.text, err, c.want)
		}
	}
}

const user = `{"model":"coder","messages":[{"role":"user","content":"please title this"}]`

// What the repository ships must be what the parser takes.
func TestShippedScriptsAreGood(t *testing.T) {
	for _, file := range []string{"examples/sample/script.yaml", "tests/e2e/npm/qwen.yaml", "tests/e2e/npm/opencode.yaml"} {
		b, err := os.ReadFile("../../../" + file)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Parse(b); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}

func TestFirstMatchWinsAndIsUsedUp(t *testing.T) {
	target := parse(t, `
- {when: {role: other}, reply: {text: other}}
- {when: {tools: true}, reply: {text: with tools}}
- {when: {tools: false, last_user: title}, times: 2, reply: {text: title}}
- {reply: {text: rest}}
`)
	for i, want := range []string{"title", "title", "rest", "no step of the script matches"} {
		if got := ask(t, target, "a", user+`}`); !strings.Contains(got, want) {
			t.Errorf("call %d: %s, want %s", i, got, want)
		}
	}
	// Another cell starts afresh: a second run of a demo is like the first.
	if got := ask(t, target, "b", user+`,"tools":[{"type":"function","function":{"name":"f"}}]}`); !strings.Contains(got, "with tools") {
		t.Error(got)
	}
}

func TestAfterToolFollowsTheCallID(t *testing.T) {
	target := parse(t, "- {when: {after_tool: write}, reply: {text: written}}\n- {reply: {text: other}}")
	body := `{"model":"m","messages":[{"role":"assistant","tool_calls":[
		{"id":"1","type":"function","function":{"name":"read","arguments":""}},
		{"id":"2","type":"function","function":{"name":"write","arguments":""}}]},
		{"role":"tool","tool_call_id":"1","content":"x"}`
	if got := ask(t, target, "", body+`]}`); !strings.Contains(got, "other") {
		t.Error(got)
	}
	if got := ask(t, target, "", body+`,{"role":"tool","tool_call_id":"2","content":"x"}]}`); !strings.Contains(got, "written") {
		t.Error(got)
	}
}

// The shape of an unmatched call is for a log and a terminal: it has no content.
func TestNoMatchPrintsShapeAndNoContent(t *testing.T) {
	target := parse(t, "- {when: {role: never}, reply: {text: a}}")
	const canary = "canary 51c0"
	body := `{"model":"` + canary + `","messages":[{"role":"user","content":"` + canary + `"},
		{"role":"assistant","content":"` + canary + `","tool_calls":[{"id":"` + canary + `","type":"function","function":{"name":"` + canary + `","arguments":"` + canary + `"}}]},
		{"role":"tool","tool_call_id":"` + canary + `","content":"` + canary + `"}]}`
	r := request(t, body)
	_, err := target.Answer(t.Context(), openai.Call{Role: r.Model, Request: r})
	refusal, ok := errors.AsType[*openai.Refusal](err)
	if !ok || refusal.Status != http.StatusNotFound {
		t.Fatalf("got %v", err)
	}
	if m := refusal.Message; strings.Contains(m, "canary") || !strings.Contains(m, "3 messages, the last from tool") {
		t.Error(m)
	}
}

func TestStreamIsDeterministicAndSplitsBetweenCharacters(t *testing.T) {
	const text = "- {chunk: 3, reply: {text: 'grüße 🐝🐝', tool_calls: [{name: write, arguments: {z: 1, a: [true, null, 'ü']}}]}}"
	first := ask(t, parse(t, text), "", user+`,"stream":true}`)
	if again := ask(t, parse(t, text), "", user+`,"stream":true}`); again != first {
		t.Errorf("%s\n%s", first, again)
	}
	if !utf8.ValidString(first) || strings.Contains(first, "\ufffd") {
		t.Errorf("a character was cut: %s", first)
	}
	pieces := split(`{"z":1,"a":[true,null,"ü"]}`, 3)
	if !strings.Contains(strings.Join(pieces, ""), `{"z":1,"a":[true,null,"ü"]}`) || len(pieces) != 9 {
		t.Errorf("pieces %q", pieces)
	}
	whole := ask(t, parse(t, text), "", user+`}`)
	if !strings.Contains(whole, `"arguments":"{\"z\":1,\"a\":[true,null,\"ü\"]}"`) {
		t.Errorf("keys lost their order: %s", whole)
	}
}

func TestStepsAreUsedOnceUnderParallelCalls(t *testing.T) {
	target := parse(t, "- {times: 50, reply: {text: yes}}")
	var hits, misses sync.Map
	var work sync.WaitGroup
	for i := range 80 {
		work.Go(func() {
			if got := ask(t, target, "c", user+`}`); strings.Contains(got, "yes") {
				hits.Store(i, true)
			} else {
				misses.Store(i, true)
			}
		})
	}
	work.Wait()
	count := func(m *sync.Map) (n int) { m.Range(func(any, any) bool { n++; return true }); return }
	if count(&hits) != 50 || count(&misses) != 30 {
		t.Errorf("%d answered, %d refused", count(&hits), count(&misses))
	}
}

func TestMemoryOfCellsIsBounded(t *testing.T) {
	target := parse(t, "- {reply: {text: a}}")
	for i := range maxCells + 10 {
		target.progressOf(strings.Repeat("x", i%7) + string(rune(0x4e00+i)))
	}
	if len(target.cells) > maxCells || len(target.order) > maxCells {
		t.Errorf("%d cells remembered", len(target.cells))
	}
}

func TestHandlerSpeaksTheDialect(t *testing.T) {
	srv := httptest.NewServer(Handler(parse(t, "- {when: {role: coder}, times: 9, reply: {text: hello world, usage: {input: 3, output: 2}}}")))
	defer srv.Close()
	post := func(body string) (int, string) {
		resp, err := http.Post(srv.URL+"/v1/chat/completions", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, _ := io.ReadAll(bufio.NewReader(resp.Body))
		return resp.StatusCode, string(b)
	}
	if code, got := post(user + `}`); code != 200 || !strings.Contains(got, `"content":"hello world"`) || !strings.Contains(got, `"total_tokens":5`) {
		t.Errorf("%d %s", code, got)
	}
	if code, got := post(user + `,"stream":true}`); code != 200 || !strings.HasSuffix(got, "data: [DONE]\n\n") || strings.Contains(got, "total_tokens") {
		t.Errorf("%d %s", code, got)
	}
	if _, got := post(user + `,"stream":true,"stream_options":{"include_usage":true}}`); !strings.Contains(got, `"total_tokens":5`) {
		t.Error(got)
	}
	if code, got := post(user + `,"web_search_options":{}}`); code != 400 || !strings.Contains(got, "web_search_options") {
		t.Errorf("%d %s", code, got)
	}
	resp, _ := http.Get(srv.URL + "/v1/models")
	b, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	if !strings.Contains(string(b), `"id":"coder"`) {
		t.Errorf("%s", b)
	}
}

func TestServeEndsWithItsContext(t *testing.T) {
	if err := Serve(context.Background(), nil, "testdata/absent.yaml"); err == nil {
		t.Error("served a file that is not there")
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("- {when: {tools: true}, reply: {text: a, tool_calls: [{name: f, arguments: {a: [1]}}]}}"))
	f.Fuzz(func(t *testing.T, file []byte) {
		s, err := Parse(file)
		if err != nil {
			return
		}
		for i := range s {
			m := message{step: &s[i]}
			if !slices.ContainsFunc(m.chunks(), func(b []byte) bool { return len(b) > 0 }) {
				t.Fatal("a step without an answer")
			}
		}
	})
}
