// Written from the Rust types by `UPDATE=1 cargo test -p reseed-protocol`. Do not edit.

import type { EntryId, Timestamp } from "./basics.js";
import type { Message } from "./content.js";
import type { CompactionTrigger } from "./events.js";

/** One node of the tree. */
export type Entry = {
  /** Names the entry within its session. */
  entryId: EntryId;
  /** The entry this one hangs from; `null` for a root. */
  parentId: EntryId | null;
  /** When it was made. */
  timestamp: Timestamp;
} & (
  | { type: "message" } & Message
  | { type: "compaction" } & Compaction
  | { type: "branch_summary" } & BranchSummary
  | { type: "context_transform" } & Opaque
  | { type: "ephemeral" } & Opaque
  | { type: "custom" } & Opaque
  | { type: "custom_message" } & Opaque
  | { type: "model_change" } & Opaque
  | { type: "thinking_level_change" } & Opaque
  | { type: "label" } & Opaque
  | { type: "session_info" } & Opaque
);

/** A compaction: nothing is deleted, this summary takes the older entries' place in what the model sees. */
export interface Compaction {
  /** The summary, as the model will read it. */
  summary: string;
  /** The first entry that is kept word for word; absent when none is. */
  firstKeptEntryId?: EntryId;
  /** Older entries kept word for word, placed between the summary and the first kept entry. */
  keptEntryIds?: Array<EntryId>;
  /** Tokens of the next request before this compaction. */
  tokensBefore: number;
  /** Tokens of the same request after it; absent in histories made elsewhere. */
  tokensAfter?: number;
  /** Why it was done; absent in histories made elsewhere. */
  trigger?: CompactionTrigger;
  /** Milliseconds it took; absent in histories made elsewhere. */
  durationMs?: number;
  /** Files the summarised part read and modified, as tools named them; accumulates over compactions. */
  details?: CompactionDetails;
}

/** Files that the summarised part touched. */
export interface CompactionDetails {
  /** Files read and not modified, sorted. */
  readFiles: Array<string>;
  /** Files written or edited, sorted. */
  modifiedFiles: Array<string>;
}

/** A summary of the branch that was left. */
export interface BranchSummary {
  /** The entry from which the session went on; `null` for before the first. */
  fromId: EntryId | null;
  /** The leaf that was left. */
  leftLeafId?: EntryId;
  /** The summary, as the model will read it. */
  summary: string;
}

/** Data of an entry type that this version carries along without looking inside. */
export type Opaque = Record<string, unknown>;
