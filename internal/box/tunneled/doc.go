// Package tunneled is skep-box for a cell that another runtime has made: it serves the
// tunnels of one listener, for the connector that started it (boundary.md, sections 3 and 18).
//
// Its laws:
//   - It confines itself before it reads a byte from anybody, and opens nothing but
//     connections of the gate: its listener and its connector are descriptors that it was
//     started with.
//   - Who the cell is and what it may reach is the connector's word, never the tunnel's (B33).
//   - It appends records through the connector alone (B192), and what cannot be recorded in
//     time does not open (B4).
//   - It ends when its connector does; then nobody listens.
package tunneled
