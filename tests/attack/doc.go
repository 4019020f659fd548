// Package attack tries to leave a cell (L24).
//
// Its laws:
//   - A technique is one file here, named after what it attacks, and one in
//     attacker/, a static C program that an agent could bring along.
//   - Every attempt runs outside, where it must succeed, and in a cell, where it
//     must be held; one that does not succeed outside proves nothing inside.
//   - Where only root can show that an attempt succeeds outside, an ordinary
//     user's run says so, and still asserts that the cell holds it.
//
// The table of techniques, walls and tests is docs/attacks.md.
package attack
