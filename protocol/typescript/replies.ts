// Written from the Rust types by `UPDATE=1 cargo test -p reseed-protocol`. Do not edit.

import type { EntryId, JobId } from "./basics.js";
import type { CompactionPreview } from "./compaction.js";
import type { Context, ContextInfo } from "./context.js";
import type { ErrorBody } from "./errors.js";
import type { Models, Pong, SessionOpened, Sessions, Welcome } from "./session.js";
import type { Tools, UncheckedPattern } from "./tools.js";
import type { Entries, Forked, HistoryHits, Navigated, Tree } from "./tree.js";
import type { Accepted } from "./turn.js";

/** A reply with its payload. */
export type Reply =
  | { type: "welcome"; payload: Welcome }
  | { type: "session_opened"; payload: SessionOpened }
  | { type: "sessions"; payload: Sessions }
  | { type: "models"; payload: Models }
  | { type: "entries"; payload: Entries }
  | { type: "pong"; payload: Pong }
  | { type: "accepted"; payload: Accepted }
  | { type: "ok"; payload: Done }
  | { type: "context_info"; payload: ContextInfo }
  | { type: "context"; payload: Context }
  | { type: "tools"; payload: Tools }
  | { type: "compaction_preview"; payload: CompactionPreview }
  | { type: "navigated"; payload: Navigated }
  | { type: "forked"; payload: Forked }
  | { type: "tree"; payload: Tree }
  | { type: "history_hits"; payload: HistoryHits }
  | { type: "error"; payload: ErrorBody };

/** Payload of `ok`. */
export interface Done {
  /** The compaction that was started. */
  jobId?: JobId;
  /** True if another connection hosts the session's tools and hooks, and this offer is on standby. */
  standby?: boolean;
  /** Patterns in the offered tools' schemas that arguments are not checked against: the first 32. */
  uncheckedPatterns?: Array<UncheckedPattern>;
  /** The entry that was written, or will be before the next request. */
  entryId?: EntryId;
  /** This reply covers everything up to this durable event; what the command caused follows. */
  asOfSeq?: number;
  /** True if the command had been executed before; this is its first reply. */
  duplicate?: boolean;
}
