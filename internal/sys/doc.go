// Package sys is the one door to the kernel: no other package of this module
// imports golang.org/x/sys/unix or makes a raw system call.
//
// Its laws:
//   - A function here does one kernel operation and decides nothing. Policy
//     lives with the caller.
//   - Descriptors go in and come out with their owner named in the doc
//     comment; a function that fails leaves none open.
//   - EINTR is retried where the man page allows it, never elsewhere.
package sys
