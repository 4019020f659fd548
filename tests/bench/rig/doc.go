// Package rig starts cells as skepd does, without skepd: a worker, a driver, one
// spare box, a ledger. What a figure of it lacks is the API in front.
//
// Its laws:
//   - Every wall stands: namespaces, overlay, Landlock, the system call filter,
//     cgroups, box and ledger are the real ones.
//   - The order is the daemon's: declared is durable before the build begins, and
//     started before the start is reported.
//   - Nothing outlives Close.
package rig
