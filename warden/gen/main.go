// Command gen writes tables.h: everything that the warden hands to the kernel as
// it is. The rules stand here in Go, where they can be read and tested; the C
// program holds bytes and no logic about them.
//
// Laws: the output depends on nothing but this source (make check compares it),
// and a table is sent or installed whole or not at all.
package main

import (
	"bytes"
	"fmt"
	"os"

	"golang.org/x/net/bpf"
)

func main() {
	var out bytes.Buffer
	out.WriteString("/* Written by warden/gen; change that and run make generate. */\n#pragma once\n\n")
	if err := tables(&out); err != nil {
		fmt.Fprintln(os.Stderr, "warden/gen:", err)
		os.Exit(1)
	}
	if _, err := os.Stdout.Write(out.Bytes()); err != nil {
		os.Exit(1)
	}
}

func tables(out *bytes.Buffer) error {
	writeBytes(out, "rt_common", "lo up and the IPv4 cell address with its default route (B11)", routeIPv4())
	writeBytes(out, "rt_ipv6", "the IPv6 cell address with its default route; may fail where the kernel has no IPv6", routeIPv6())
	rules, err := ruleset()
	if err != nil {
		return err
	}
	writeBytes(out, "nft_rules", "the early gate and the redirection (B12, B13) as one transaction", rules)
	writeBytes(out, "nflog_bind", "subscribe to the early gate's log group", nflogBind())

	if err := writeElements(out); err != nil {
		return err
	}
	if err := writeFlows(out); err != nil {
		return err
	}
	for _, f := range []struct {
		name, what string
		filter     filter
	}{
		{"filter_cell", "what an agent may call (L11)", cellFilter(false)},
		{"filter_cell_sized", "the same, with its own size answered by notification (L13b)", cellFilter(true)},
	} {
		program, err := f.filter.assemble()
		if err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
		writeProgram(out, f.name, f.what, program)
	}
	fmt.Fprintf(out, "enum { port_tcp = %d, port_udp = %d, port_dns = %d, nflog_group = %d };\n", portTCP, portUDP, portDNS, logGroup)
	return nil
}

func writeBytes(out *bytes.Buffer, name, what string, t table) {
	data := t.bytes
	fmt.Fprintf(out, "enum { %s_last = %d };\n", name, t.last)
	fmt.Fprintf(out, "/* %s */\nstatic const unsigned char %s[%d] = {", what, name, len(data))
	for i, b := range data {
		if i%16 == 0 {
			out.WriteString("\n    ")
		}
		fmt.Fprintf(out, "0x%02x,", b)
	}
	out.WriteString("\n};\n\n")
}

func writeProgram(out *bytes.Buffer, name, what string, program []bpf.RawInstruction) {
	fmt.Fprintf(out, "/* %s */\nstatic const struct sock_filter %s[%d] = {\n", what, name, len(program))
	for _, i := range program {
		fmt.Fprintf(out, "    {0x%02x, %d, %d, 0x%08x},\n", i.Op, i.Jt, i.Jf, i.K)
	}
	out.WriteString("};\n\n")
}
