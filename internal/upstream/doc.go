// Package upstream holds the MCP servers behind the gateway: it connects to them over stdio or streamable HTTP, keeps them
// connected, lists what they offer, and carries permitted calls to them.
//
// Promises:
//   - Everything a server sends is hostile. Lines, events, bodies, lists, schemas and notifications are bounded in size, number and
//     rate; JSON is strictly parsed; text is escaped before it is logged or shown. A server that misbehaves fails its own calls
//     and, at worst, is cut off and connected to again with back-off. It never reaches another server's calls.
//   - A request is sent at most once. What certainly never left is a fault.NotDispatched; anything else has an unknown outcome.
//   - A response goes to the one call whose id it carries. Ids are ours ("sp-N"), unsolicited and second answers are dropped.
//   - No credential of an agent is ever sent to a server: requests carry Config.Headers and nothing of the caller's.
//   - Servers may ask the agent's client something only where Config.ClientFeatures says so, and then only in a conversation that no other
//     client shares.
//
// The go-sdk negotiates each conversation (server/discover or initialize). It speaks through our own wires (stdio.go, http.go), sees
// nothing but the answers to its handshake, and is idle from then on: a panic in one of its callbacks would end the process, and its
// decoding costs ten times what forwarding bytes does. Calls, lists and notifications take the lean path in conversation.go.
package upstream
