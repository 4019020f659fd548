// Package npm lets third-party agents from npm work in a cell, unmodified.
//
// Its laws:
//   - Only the base URL, the key and the model's name are set; nothing in the agent is
//     changed, and no proxy, certificate or variable of Skep's is in its cell.
//   - The version is the one that was tried, so that a failure is Skep's, not a release's.
//   - Where npm, node or the registry is missing, the test is skipped with that reason.
package npm
