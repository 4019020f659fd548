package testlab_test

import (
	"os"
	"testing"

	"skep.dev/skep/internal/testlab"
)

// TestCeilingIsTheLabs: what a test writes for the operator is not on the host, and
// what the host has in /etc is in the lab.
func TestCeilingIsTheLabs(t *testing.T) {
	const file = "/etc/skep/ceiling.yaml"
	testlab.New(t).Ceiling("open: []\n")
	if text, err := os.ReadFile(file); err != nil || string(text) != "open: []\n" {
		t.Errorf("%q, %v", text, err)
	}
	if _, err := os.Stat("/etc/passwd"); err != nil {
		t.Error(err)
	}
	// Process 1 is outside, where its files can be looked at.
	if text, err := os.ReadFile("/proc/1/root" + file); err == nil && string(text) == "open: []\n" {
		t.Error("the host has the ceiling of a test")
	}
}
