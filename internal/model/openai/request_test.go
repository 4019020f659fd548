package openai

import (
	"encoding/json/v2"
	"errors"
	"os"
	"strings"
	"testing"
)

const plain = `{"model":"coder","messages":[{"role":"user","content":"hi"}]`

func TestUnknownFieldIsRefusedByItsName(t *testing.T) {
	for name, body := range map[string]string{
		"web_search_options":    plain + `,"web_search_options":{}}`,
		"MODEL":                 plain + `,"MODEL":"x"}`,
		"service_tier":          plain + `,"service_tier":"priority"}`,
		"messages.0.audio":      `{"model":"m","messages":[{"role":"user","content":"x","audio":{}}]}`,
		"messages.0.content":    `{"model":"m","messages":[{"role":"user","content":[{"type":"image_url"}]}]}`,
		"image_url":             `{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"x","image_url":{}}]}]}`,
		"tools.0.type":          plain + `,"tools":[{"type":"web_search","function":{"name":"x"}}]}`,
		"tools.0.web_search":    plain + `,"tools":[{"type":"function","web_search":{},"function":{"name":"x"}}]}`,
		"model":                 plain + `,"model":"other"}`,
		"store":                 plain + `,"store":true}`,
		"\"n\"":                 plain + `,"n":4}`,
		"stream_options.x":      plain + `,"stream":true,"stream_options":{"x":1}}`,
		"max_completion_tokens": plain + `,"max_tokens":5,"max_completion_tokens":7}`,
	} {
		_, err := ParseRequest([]byte(body))
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	_, err := ParseRequest([]byte(plain + `,"zz":1}`))
	if !errors.Is(err, ErrUnknownField) {
		t.Errorf("got %v", err)
	}
}

// A message of refusal may reach logs: it holds names, no values.
func TestRefusalQuotesNoValue(t *testing.T) {
	const canary = "canary-7f3a"
	for _, body := range []string{
		plain + `,"max_tokens":"` + canary + `"}`,
		plain + `,"temperature":"` + canary,
		`"` + canary + `"`,
		`{"model":"` + strings.Repeat(canary, 20) + `","messages":[{"role":"user"}]}`,
		`{"model":"m","messages":[{"role":"` + canary + `"}]}`,
		`{"model":"m","messages":[{"role":"user","content":[{"type":"` + canary + `"}]}]}`,
		plain + `,"response_format":{"type":"` + canary + `"}}`,
	} {
		if _, err := ParseRequest([]byte(body)); err == nil || strings.Contains(err.Error(), canary) {
			t.Errorf("%.60s: got %v", body, err)
		}
	}
}

func TestWhatIsAllowedGoesOutAsItCame(t *testing.T) {
	body, err := os.ReadFile("testdata/agent-request.json")
	if err != nil {
		t.Fatal(err)
	}
	r, err := ParseRequest(body)
	if err != nil {
		t.Fatal(err)
	}
	out, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var in, back any
	json.Unmarshal(body, &in)
	json.Unmarshal(out, &back)
	x, _ := json.Marshal(in, json.Deterministic(true))
	y, _ := json.Marshal(back, json.Deterministic(true))
	if string(x) != string(y) {
		t.Errorf("in  %s\nout %s", x, y)
	}
}

func FuzzParseRequest(f *testing.F) {
	f.Add([]byte(plain + `}`))
	f.Add([]byte(plain + `,"stop":["a"],"tools":[{"type":"function","function":{"name":"f","parameters":{}}}]}`))
	f.Add([]byte(`{"model":"\ud800","messages":[{"role":"user","content":[{"type":"text","text":"é"}]}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := ParseRequest(body)
		if err != nil {
			return
		}
		out, err := json.Marshal(r)
		if err != nil {
			t.Fatalf("parsed and not printed: %v", err)
		}
		if _, err := ParseRequest(out); err != nil {
			t.Fatalf("what goes upstream does not parse: %v\n%s", err, out)
		}
	})
}
