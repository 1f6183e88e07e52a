// Written from the Rust types by `UPDATE=1 cargo test -p reseed-protocol`. Do not edit.

export type * from "./frames.js";
export * from "./command-table.js";
export type * from "./commands.js";
export type * from "./replies.js";
export type * from "./events.js";
export type * from "./session.js";
export type * from "./turn.js";
export type * from "./hooks.js";
export type * from "./tools.js";
export type * from "./tree.js";
export type * from "./compaction.js";
export type * from "./context.js";
export type * from "./content.js";
export type * from "./receipt.js";
export type * from "./errors.js";
export type * from "./basics.js";
/** The older dialect. */
export type * as v1 from "./v1.js";
