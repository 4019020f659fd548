// Package testlab is a small internet inside a network namespace of the test's
// own: names, addresses and servers at will, and a record of what reached them.
//
// Its laws:
//   - Nothing leaves the namespace: it has no device but lo, and every address
//     of the world is the lab's own (a local route for all of them), so public,
//     private and metadata addresses are served alike, and one that nobody
//     serves refuses at once.
//   - The test binary itself runs there, whole (Run) or for one test (Test), as
//     the user who started it and with no more power: what it starts, skepd and
//     boxes included, sees the lab and nothing else. /etc/resolv.conf and
//     /etc/hosts are the lab's.
//   - Whatever arrives is recorded before it is answered, so that "nothing was
//     sent" can be asserted.
package testlab
