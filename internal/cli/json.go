package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// compact removes the spaces that protojson adds at random, so that a line is
// always the same.
func compact(raw []byte) ([]byte, error) {
	var b bytes.Buffer
	if err := json.Compact(&b, raw); err != nil {
		return nil, fmt.Errorf("write JSON: %w", err)
	}
	return b.Bytes(), nil
}

// printValue prints a value of our own as one line of JSON.
func (a *App) printValue(v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("write JSON: %w", err)
	}
	_, err = fmt.Fprintf(a.Out, "%s\n", raw)
	return err
}
