// Package script runs user journeys: each file of testdata is a person at a
// shell, with a skepd of its own.
//
// Its law: the programs are the built ones of bin/, never a part of them. Without
// them, or without what a cell needs of the host, the journeys are skipped with
// the reason.
package script

import (
	"encoding/json"
	"fmt"
)

// hashOf finds the hash in the JSON form of a difference.
func hashOf(text string) (string, error) {
	var d struct{ Hash string }
	if err := json.Unmarshal([]byte(text), &d); err != nil {
		return "", fmt.Errorf("read the difference: %w", err)
	}
	if len(d.Hash) != 64 {
		return "", fmt.Errorf("read the difference: the hash is %q", d.Hash)
	}
	return d.Hash, nil
}
