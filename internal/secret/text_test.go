package secret

import (
	"bytes"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"skep.dev/skep/internal/flow"
)

var atAPI = At{Host: "api.test", Port: 443, Path: "/"}

// A text message is filled in where `ws` says so, as JSON where it is JSON (BS-3).
func TestText(t *testing.T) {
	k := bind(t, as("ws"))
	for _, c := range []struct{ text, want string }{
		{"auth " + mark, "auth " + value},
		{`{"token": "` + mark + `"}`, `{"token": "` + string(quote([]byte(value))) + `"}`},
		{`{"token": "` + mark, `{"token": "` + value},
		{"plain", "plain"}, {"", ""},
		{strings.ReplaceAll(mark, "-", "%2d"), "secret-misplaced"},
		{"skep-secret-gh-01234567", "secret-unknown"},
		{strings.Repeat(" ", MaxText+1), "secret-too-large"},
	} {
		out, uses, why := k.Stray(atAPI).Text(testTime(), []byte(c.text))
		got := string(out)
		if why != flow.None {
			got = why.Token()
		}
		if got != c.want || why == flow.None && len(uses) != strings.Count(c.text, mark) {
			t.Errorf("%.60q: %.60q, %v", c.text, got, uses)
		}
	}
	if _, _, why := k.Stray(At{"api.test", 80, "/"}).Text(testTime(), []byte(mark)); why != flow.SecretNotBound {
		t.Errorf("another port: %q", why.Token())
	}
	if !k.InText(atAPI) || k.InText(At{"api.test", 80, "/"}) || bind(t, nil).InText(atAPI) {
		t.Error("the wrong messages are read whole")
	}
	s := k.Stray(atAPI)
	if _, _, why := s.Text(testTime(), []byte(mark[:9])); why != flow.None {
		t.Error(why.Token())
	}
	if _, _, why := s.Text(testTime(), []byte(mark[9:])); why != flow.SecretMisplaced {
		t.Error("a placeholder goes on in two messages:", why.Token())
	}
}

// Many placeholders in a small text do not make a large one of values.
func TestFilledTextsAreBounded(t *testing.T) {
	k := bind(t, as("ws", "json:token", "query:key", "header:x-key"))
	v, err := NewValue(bytes.Repeat([]byte("v"), MaxValue))
	if err != nil {
		t.Fatal(err)
	}
	k.Set("gh", v, testTime().Add(1e12))
	for n, want := range map[int]flow.Reason{maxFilled / MaxValue: flow.None, maxFilled/MaxValue + 1: flow.SecretTooLarge} {
		marks := strings.Repeat(mark, n)
		_, _, text := k.Stray(atAPI).Text(testTime(), []byte(marks))
		_, _, body := k.Body("api.test", 443, testTime(), head(t, "/", "Content-Type: application/json"), []byte(`{"token":"`+marks+`"}`))
		_, _, query := k.Head("api.test", 443, testTime(), head(t, "/?key="+marks))
		_, _, field := k.Head("api.test", 443, testTime(), head(t, "/", "X-Key: "+marks))
		for i, why := range []flow.Reason{text, body, query, field} {
			if why != want {
				t.Errorf("%d values, %d: %q", n, i, why.Token())
			}
		}
	}
}

// What ends like the beginning of a value does not wait for more, and of a value that is
// found no more than a quarter has passed, or half where messages end in it.
func TestMostOfAValueIsHeldBack(t *testing.T) {
	k := bind(t, nil)
	w := k.Watch("api.test", 443)
	for _, text := range []string{"x" + value[:len(value)/4], "a", value[:1], value[:2]} {
		if out, err := w.Feed([]byte(text)); err != nil || string(out) != text {
			t.Errorf("%q waits: %q, %v", text, out, err)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		w := k.Watch("api.test", 443)
		front := rapid.SampledFrom([]string{"", "x", value[:3], value[:9]}).Draw(t, "front")
		text := front + value
		passed, messages := "", false
		for len(text) > 0 {
			n := rapid.IntRange(1, len(text)).Draw(t, "piece")
			out, err := w.Feed([]byte(text[:n]))
			if passed += string(out); err != nil {
				break
			}
			if text = text[n:]; rapid.IntRange(0, 3).Draw(t, "end") == 0 {
				messages = true
				if out, err = w.Flush(); err != nil {
					break
				}
				passed += string(out)
			}
			if len(text) == 0 {
				t.Errorf("%q has passed", passed)
			}
		}
		most := len(value) / 4
		if messages {
			most = len(value) / 2
		}
		if n := len(passed) - len(front); n > most {
			t.Errorf("%d bytes of the value have passed: %q", n, passed)
		}
	})
}

// However a text is cut into messages, no placeholder is in what is sent on (BS-4).
func TestNoCutOfMessagesLetsAPlaceholderThrough(t *testing.T) {
	k := bind(t, as("ws"))
	rapid.Check(t, func(t *rapid.T) {
		texts := encodings()
		kinds := []string{"plain", "percent", "json", "base64"}
		text := rapid.StringN(0, 20, -1).Draw(t, "front") + "," + texts[rapid.SampledFrom(kinds).Draw(t, "encoding")]("skep-secret-other-01234567")
		s, sent := k.Stray(atAPI), ""
		for len(text) > 0 {
			n := rapid.IntRange(1, len(text)).Draw(t, "message")
			out, _, why := s.Text(testTime(), []byte(text[:n]))
			if why == flow.SecretUnknown {
				return
			}
			sent, text = sent+string(out), text[n:]
		}
		t.Errorf("%q is sent", sent)
	})
}
