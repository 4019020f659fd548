// Package datagrams takes the UDP of a cell to its gate: what comes to a socket to which
// the cell's kernel has turned it (boundary.md, B12).
//
// Its laws:
//   - A source stands for one destination, which conntrack names at its first datagram;
//     that is one Request. Until the flow is over its datagrams go there or nowhere,
//     whatever the cell does to its sockets meanwhile.
//   - What conntrack does not know, or what was aimed at the socket itself, goes nowhere
//     and is recorded (B16).
//   - Answers leave by the socket that the datagrams came to, so that the cell sees the
//     address that it wrote to.
//   - After the end of a flow, or its refusal, the kernel judges the next datagram as a
//     first one, so that it fails where policy does not let it pass (B64).
package datagrams
