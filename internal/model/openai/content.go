package openai

import (
	"encoding/json/jsontext"
	"encoding/json/v2"
	"errors"
	"strings"
)

// Content is a message's content: a text, or a list of text parts. The form that
// came in goes out. Images, sound and files are refused: a URL in them would let
// the agent reach out through the provider, and their tokens have no bound in
// bytes.
type Content struct {
	text  string
	parts []Part // nil where the content is one text
}

// Part is one piece of a list; Type is "text" or "refusal".
type Part struct {
	Type    string `json:"type"`
	Text    string `json:"text,omitzero"`
	Refusal string `json:"refusal,omitzero"`
}

// TextContent returns a content of one text.
func TextContent(s string) *Content { return &Content{text: s} }

// Text returns all text of c, parts joined by a newline; "" for nil.
func (c *Content) Text() string {
	if c == nil {
		return ""
	}
	if c.parts == nil {
		return c.text
	}
	var texts []string
	for _, p := range c.parts {
		texts = append(texts, p.Text)
	}
	return strings.Join(texts, "\n")
}

// UnmarshalJSONFrom reads either form.
func (c *Content) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	switch d.PeekKind() {
	case '"':
		return json.UnmarshalDecode(d, &c.text)
	case '[':
		// The options of the outer call hold here too: an unknown field of a
		// part is refused.
		c.parts = []Part{}
		if err := json.UnmarshalDecode(d, &c.parts); err != nil {
			return err
		}
		for _, p := range c.parts {
			if p.Type != "text" && p.Type != "refusal" {
				return errors.New("a content part is not text")
			}
		}
		return nil
	}
	return errors.New("content is neither text nor a list")
}

// MarshalJSONTo writes the form that came in.
func (c *Content) MarshalJSONTo(e *jsontext.Encoder) error {
	if c.parts != nil {
		return json.MarshalEncode(e, c.parts)
	}
	return json.MarshalEncode(e, c.text)
}
