package cli

import (
	"encoding/json"
	"fmt"
)

// printValue prints a value of our own as one line of JSON.
func (a *App) printValue(v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("write JSON: %w", err)
	}
	_, err = fmt.Fprintf(a.Out, "%s\n", raw)
	return err
}
