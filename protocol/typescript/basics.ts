// Written from the Rust types by `UPDATE=1 cargo test -p reseed-protocol`. Do not edit.

/** An entry of a session's tree. Also the `itemId` of an answer being streamed. */
export type EntryId = string;

/** A tool call. Created by the server, not by the upstream, which may reuse ids. */
export type CallId = string;

/** An entry's id, or `root` for the place before the first entry. */
export type LeafId = EntryId | "root";

/** A turn: from a user message until the loop is idle again. */
export type TurnId = string;

/** A frame that a client sent; the idempotency key of a writing command. */
export type CommandId = string;

/** An approval: a tool call that a person must allow. */
export type ApprovalId = string;

/** A running compaction. */
export type JobId = string;

/** Milliseconds since 1970-01-01T00:00:00Z. On the wire `2026-11-21T06:45:04.123Z`. */
export type Timestamp = string;

/** A connection. Created by the server. */
export type ConnectionId = string;

/** A session: one append-only tree of entries. */
export type SessionId = string;
