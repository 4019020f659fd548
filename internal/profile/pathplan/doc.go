// Package pathplan turns the path rules of a profile into the mounts of a cell
// (L8, L8b) and judges paths of a difference by the same rules.
//
// Its laws:
//   - It looks at the host through two calls, lstat and readlink, and changes
//     nothing. Symlinks are resolved once, here, by the user's own program.
//   - The narrowest rule decides. What takes rights away under a writable grant
//     is a mount, and so is each directory on the way to it: a mount point
//     cannot be renamed away.
//   - Skep's own directories are never granted. What else no agent should see
//     in a home is hidden unless a rule names it.
//   - A path that does not exist has no mount but is judged all the same: what a
//     cell makes there is refused at the merge.
package pathplan
