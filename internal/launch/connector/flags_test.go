package connector

import (
	"bytes"
	"errors"
	"flag"
	"strings"
	"testing"
)

// B211 to B213: what is missing or contradicts itself is told before anything is made.
func TestFlags(t *testing.T) {
	for line, want := range map[string]string{
		"run --socket /s/x --bundle b --credential-issuer https://i --credential-audience a": "",
		"run --socket /s/x --bundle b --insecure-unverified-bundle":                          "",
		"run --socket /s/x --egress-allow a.example:443 --egress-allow *.b.example":          "",
		"serve --control c --dir d --insecure-unverified-bundle":                             "",
		"run --bundle b --insecure-unverified-bundle":                                        "--socket",
		"run --socket s --insecure-tcp-listener 127.0.0.1:1 --egress-allow a":                "--socket",
		"run --socket s": "either --bundle or --egress-allow",
		"run --socket s --bundle b --egress-allow a":                                           "either --bundle or --egress-allow",
		"run --socket s --bundle b":                                                            "a bundle is verified",
		"run --socket s --bundle b --credential-issuer https://i":                              "a bundle is verified",
		"run --socket s --bundle b --credential-audience a":                                    "a bundle is verified",
		"run --socket s --bundle b --insecure-unverified-bundle --credential-audience a":       "verifies nothing",
		"run --socket s --bundle b --insecure-unverified-bundle --credential-issuer https://i": "verifies nothing",
		"run --socket s --egress-allow a --insecure-unverified-bundle":                         "has no credential",
		"run --socket s --egress-allow a --max-flows -1":                                       "negative",
		"run --socket s --egress-allow a more":                                                 "unexpected argument",
		"run --socket s --egress-allow a --records ":                                           "--records",
		"run --socket s --egress-allow a --control c":                                          "not defined",
		"serve --dir d --insecure-unverified-bundle":                                           "--control and --dir",
		"serve --control c --dir d":                                                            "a bundle is verified",
		"serve --control c --dir d --insecure-unverified-bundle --egress-allow a":              "not defined",
	} {
		words := strings.Split(line, " ")
		_, err := parse(words[0], words[1:], &bytes.Buffer{})
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", line, err, want)
		}
	}
	var help bytes.Buffer
	if err := Run([]string{"run", "--help"}, &help, &help); !errors.Is(err, flag.ErrHelp) || !strings.Contains(help.String(), "skep-box serve --control") || !strings.Contains(help.String(), "-credential-audience") {
		t.Errorf("%v: %s", err, &help)
	}
	if err := Run([]string{"tunnel", "x"}, &help, &help); err == nil {
		t.Error("an unknown command is taken")
	}
}
