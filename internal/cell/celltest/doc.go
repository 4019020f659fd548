// Package celltest builds cells for tests, without a daemon: a worker of the
// test's own, a small tree, and the agent's output.
//
// Its laws:
//   - The cell is the one that users get: same worker, same warden, same driver.
//   - What it needs from the host and does not find skips the test with a sentence.
package celltest
