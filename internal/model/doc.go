// Package model is the gateway between cells and models: roles, budgets and the
// record of each call (model.md MG1 to MG6, MG9).
//
// Its laws:
//   - A connection is one cell's; nothing that is sent on it can name another.
//   - An agent names a role. Host, path, key and the provider's model name come
//     from the configuration alone.
//   - Reserve, record, then send: a call that is not durably recorded and held is
//     not made. Then settle. What is not known keeps its hold.
//   - One attempt for each admitted call. Another target is asked only before the
//     first byte went to the agent, and only if the first cannot have charged.
//   - Answers pass as they came, each event at once.
//   - Neither logs nor records hold a prompt, an answer or a key: digests, sizes,
//     names.
package model
