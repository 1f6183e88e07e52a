// Written from the Rust types by `UPDATE=1 cargo test -p reseed-protocol`. Do not edit.

import type { EntryId, Timestamp } from "./basics.js";
import type { Message, Part, Usage } from "./content.js";
import type { CompactionRung, CompactionTrigger, FailedRung, Retained } from "./events.js";
import type { ContextTransform, EphemeralChange, PatchOp } from "./patch.js";

/** One node of the tree. */
export type Entry = {
  /** Names the entry within its session. */
  entryId: EntryId;
  /** The entry this one hangs from; `null` for a root. */
  parentId: EntryId | null;
  /** When it was made. */
  timestamp: Timestamp;
  /** What the file it was imported from says beyond this, given back on export. Means nothing to a client. */
  imported?: Record<string, unknown>;
} & (
  | { type: "message" } & Message
  | { type: "compaction" } & Compaction
  | { type: "branch_summary" } & BranchSummary
  | { type: "context_transform" } & Kept<ContextTransform>
  | { type: "ephemeral" } & Kept<EphemeralChange>
  | { type: "custom" } & Custom
  | { type: "custom_message" } & CustomMessage
  | { type: "model_change" } & ModelChange
  | { type: "thinking_level_change" } & ThinkingLevelChange
  | { type: "label" } & Label
  | { type: "session_info" } & SessionInfo
  | { type: "foreign" } & Foreign
);

/** A compaction: nothing is deleted, this summary takes the older entries' place in what the model sees. */
export interface Compaction {
  /** The summary, as the model will read it; empty where nothing was summarised. */
  summary: string;
  /** The first entry that is kept word for word; absent when none is. */
  firstKeptEntryId?: EntryId;
  /** Older entries kept word for word, placed between the summary and the first kept entry. */
  keptEntryIds?: Array<EntryId>;
  /** Entries from then on whose tool results are shown as a short note. */
  clearedEntryIds?: Array<EntryId>;
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
  /**
   * What the patches before this compaction make of the system prompt, the tools and the options, so that they need
   * not be looked for beyond it.
   */
  carriedPatch?: Array<PatchOp>;
  /** The form of the summary; absent where none was made, where a hook made it, and in older entries. */
  form?: SummaryForm;
  /**
   * What the user said must or must not be, word for word, carried from one compaction to the next; absent in older
   * entries.
   */
  constraints?: Array<string>;
  /** The hook whose summary this is, or that named the model which made it. */
  hook?: string;
  /** What that hook keeps with it. */
  hookDetails?: unknown;
  /** The step that made room; absent in histories made elsewhere or before this was kept. */
  rung?: CompactionRung;
  /** The steps before it that failed or saved too little. */
  failedRungs?: Array<FailedRung>;
  /** How well the summary kept what is exact. */
  retained?: Retained;
  /** What the requests for the summary cost together. */
  summaryUsage?: Usage;
}

/** Files that the summarised part touched. */
export interface CompactionDetails {
  /** Files read and not modified, sorted. */
  readFiles: Array<string>;
  /** Files written or edited, sorted. */
  modifiedFiles: Array<string>;
}

/** The form of a summary. */
export type SummaryForm = "sections" | "free";

/** A summary of the branch that was left. */
export interface BranchSummary {
  /** The entry from which the session went on; `null` for before the first. */
  fromId: EntryId | null;
  /** The leaf that was left. */
  leftLeafId?: EntryId;
  /** The summary, as the model will read it. */
  summary: string;
  /** Files that the branch which was left read and modified; absent in histories made elsewhere. */
  details?: CompactionDetails;
  /** What making it cost; absent where no model was asked. */
  usage?: Usage;
  /** The hook whose summary this is. */
  hook?: string;
  /** What that hook keeps with it. */
  hookDetails?: unknown;
}

/**
 * Data of an entry, as this version knows it, or as another wrote it: carried along without looking inside. For a
 * client: a field may be missing or mean something else; look before you use it.
 */
export type Kept<T> = T | Partial<T>;

/** Data of a client's, never sent to the model. */
export interface Custom {
  /** What kind of data, in the client's own words. */
  customType: string;
  /** The data, any JSON. */
  data?: unknown;
}

/** A message of a client's, sent to the model in the user's place. */
export interface CustomMessage {
  /** What kind of message, in the client's own words. */
  customType: string;
  /** What it says to the model. */
  content: Array<Part>;
  /** Whether it should be shown to people. */
  display: boolean;
  /** More for programs; never sent to the model. */
  details?: unknown;
}

/** The model changes here. */
export interface ModelChange {
  /** The provider, in histories made elsewhere. */
  provider?: string;
  /** The model's name. */
  model: string;
}

/** The reasoning level changes here. */
export interface ThinkingLevelChange {
  /** The provider's own word; `default` for leaving it to the provider. */
  thinkingLevel: string;
}

/** A name for another entry. */
export interface Label {
  /** The entry that is named. */
  targetId: EntryId;
  /** The name; absent to take it away. */
  label?: string;
}

/** The session's name. */
export interface SessionInfo {
  /** The name. */
  name: string;
}

/** An entry of a type that this version does not know. */
export interface Foreign {
  /** Its type in the file that it came from. */
  foreignType: string;
  /** Its other fields. */
  data: Record<string, unknown>;
}
