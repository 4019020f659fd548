package kind

import (
	"fmt"
	"reflect"
	"strings"

	"skep.dev/skep/internal/ledger/jcs"
)

// Schema returns the JSON Schema (2020-12) of the body of kind k, as indented
// JSON. It is made from the members that the encoder writes.
func Schema(k Kind) ([]byte, error) {
	b := New(k)
	if b == nil {
		return nil, fmt.Errorf("schema of %q: no such kind", k)
	}
	var w strings.Builder
	fmt.Fprintf(&w, "{\n  \"$schema\": \"https://json-schema.org/draft/2020-12/schema\",\n")
	fmt.Fprintf(&w, "  \"$id\": \"https://skep.dev/schemas/ledger/v%s/%s.json\",\n", Version, k)
	fmt.Fprintf(&w, "  \"title\": \"Body of a %s entry, version %s\",\n", k, Version)
	if err := writeObject(&w, reflect.TypeOf(b).Elem(), "  "); err != nil {
		return nil, fmt.Errorf("schema of %s: %w", k, err)
	}
	w.WriteString("\n}\n")
	return []byte(w.String()), nil
}

// writeObject writes the keywords of an object schema without its braces.
func writeObject(w *strings.Builder, t reflect.Type, indent string) error {
	members, err := jcs.Members(t)
	if err != nil {
		return err
	}
	var required []string
	fmt.Fprintf(w, "%s\"type\": \"object\",\n%s\"additionalProperties\": false,\n%s\"properties\": {", indent, indent, indent)
	for i, m := range members {
		if i > 0 {
			w.WriteByte(',')
		}
		fmt.Fprintf(w, "\n%s  %q: ", indent, m.Name)
		if err := writeType(w, m.Type, indent+"  "); err != nil {
			return err
		}
		if !m.Optional {
			required = append(required, fmt.Sprintf("%q", m.Name))
		}
	}
	fmt.Fprintf(w, "\n%s},\n%s\"required\": [%s]", indent, indent, strings.Join(required, ", "))
	return nil
}

func writeType(w *strings.Builder, t reflect.Type, indent string) error {
	switch {
	case t == reflect.TypeFor[Bytes]():
		w.WriteString(`{"oneOf": [{"type": "string"}, {"type": "object", "additionalProperties": false, ` +
			`"properties": {"b64": {"type": "string", "contentEncoding": "base64"}}, "required": ["b64"]}]}`)
	case t.Kind() == reflect.String:
		w.WriteString(`{"type": "string"}`)
	case t.Kind() == reflect.Bool:
		w.WriteString(`{"type": "boolean"}`)
	case t.Kind() >= reflect.Int && t.Kind() <= reflect.Int64:
		w.WriteString(`{"type": "string", "pattern": "^(0|-?[1-9][0-9]*)$"}`)
	case t.Kind() >= reflect.Uint && t.Kind() <= reflect.Uint64:
		w.WriteString(`{"type": "string", "pattern": "^(0|[1-9][0-9]*)$"}`)
	case t.Kind() == reflect.Slice:
		w.WriteString(`{"type": "array", "items": `)
		if err := writeType(w, t.Elem(), indent); err != nil {
			return err
		}
		w.WriteByte('}')
	case t.Kind() == reflect.Struct:
		w.WriteString("{\n")
		if err := writeObject(w, t, indent+"  "); err != nil {
			return err
		}
		fmt.Fprintf(w, "\n%s}", indent)
	default:
		return fmt.Errorf("type %s has no schema", t)
	}
	return nil
}
