package model

import (
	"errors"
	"fmt"
	"slices"
)

// Cell is whose connection it is. It is fixed when the connection is handed over;
// no message on the connection changes it.
type Cell struct {
	ID string // 26 characters, as the daemon gave it; also the account's id
	// Agent is what X-Skep-Agent must say. Where it is "" the gateway was not
	// told, and takes what the box says if it is well formed, or empty.
	Agent string
	// Roles are the model roles of the cell's right; none means none.
	Roles []string
}

// Check refuses what no daemon sends.
func (c Cell) Check() error {
	if c.ID == "" || len(c.ID) > 64 {
		return errors.New("cell id is empty or longer than 64 bytes")
	}
	if c.Agent != "" {
		if err := checkAgent(c.Agent); err != nil {
			return fmt.Errorf("agent of cell %s: %w", c.ID, err)
		}
	}
	if slices.Contains(c.Roles, "") {
		return fmt.Errorf("cell %s has an empty role", c.ID)
	}
	return nil
}

// checkAgent wants an agent id: labels of lower-case letters, digits and inner
// hyphens, 63 bytes at most each and 253 together, as in a DNS name.
func checkAgent(id string) error {
	if id == "" || len(id) > 253 {
		return errors.New("agent id is empty or longer than 253 bytes")
	}
	start := 0
	for i := 0; i <= len(id); i++ {
		if i < len(id) && id[i] != '.' {
			c := id[i]
			if c != '-' && (c < 'a' || c > 'z') && (c < '0' || c > '9') {
				return errors.New("agent id holds a byte that no DNS name has")
			}
			continue
		}
		label := id[start:i]
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return errors.New("agent id has a label that is empty, too long or starts or ends with a hyphen")
		}
		start = i + 1
	}
	return nil
}

// checkFlow wants the id of a flow as the box prints it.
func checkFlow(id string) error {
	if id == "" || len(id) > 64 {
		return errors.New("flow id is empty or longer than 64 bytes")
	}
	for i := range len(id) {
		c := id[i]
		if c != '-' && c != '_' && (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') {
			return errors.New("flow id holds a byte that is no letter, digit or hyphen")
		}
	}
	return nil
}
