package script

import (
	"encoding/json/jsontext"
	"encoding/json/v2"
	"fmt"
	"strings"

	"github.com/goccy/go-yaml"
)

// arguments prints a tool call's arguments: a text as it is, a mapping as JSON
// with its keys in the script's order, nothing as {}.
func arguments(v any) (string, error) {
	switch v := v.(type) {
	case nil:
		return "{}", nil
	case string:
		return v, nil
	case yaml.MapSlice:
		var b strings.Builder
		e := jsontext.NewEncoder(&b)
		if err := encode(e, v); err != nil {
			return "", err
		}
		return strings.TrimSuffix(b.String(), "\n"), nil
	}
	return "", fmt.Errorf("neither a mapping nor a text")
}

// encode writes a YAML value as JSON.
func encode(e *jsontext.Encoder, v any) error {
	switch v := v.(type) {
	case yaml.MapSlice:
		if err := e.WriteToken(jsontext.BeginObject); err != nil {
			return err
		}
		for _, item := range v {
			key, ok := item.Key.(string)
			if !ok {
				return fmt.Errorf("key %v is not a text", item.Key)
			}
			if err := e.WriteToken(jsontext.String(key)); err != nil {
				return err
			}
			if err := encode(e, item.Value); err != nil {
				return err
			}
		}
		return e.WriteToken(jsontext.EndObject)
	case []any:
		if err := e.WriteToken(jsontext.BeginArray); err != nil {
			return err
		}
		for _, item := range v {
			if err := encode(e, item); err != nil {
				return err
			}
		}
		return e.WriteToken(jsontext.EndArray)
	}
	return json.MarshalEncode(e, v)
}
