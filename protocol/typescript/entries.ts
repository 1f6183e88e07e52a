// Written from the Rust types by `UPDATE=1 cargo test -p reseed-protocol`. Do not edit.

import type { EntryId, Timestamp } from "./basics.js";
import type { Message, Part, Usage } from "./content.js";
import type { CompactionRung, CompactionTrigger, FailedRung, Retained } from "./events.js";
import type { ContextTransform, EphemeralChange, PatchOp } from "./patch.js";

/** One node of the tree. */
export type Entry = {
  /** Identifies the entry within its session. */
  entryId: EntryId;
  /** Its parent; `null` for a root. */
  parentId: EntryId | null;
  /** The time of its creation. */
  timestamp: Timestamp;
  /** Further data from the file that it was imported from, written back on export. Has no meaning for clients. */
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

/** A compaction: nothing is deleted; the summary replaces the older entries in what the model sees. */
export interface Compaction {
  /** The summary, as the model will read it; empty if nothing was summarised. */
  summary: string;
  /**
   * The parts of the summary, oldest first; absent if it is one text that is rewritten as a whole, if a hook made
   * it, and in older entries.
   */
  segments?: Array<SummarySegment>;
  /** The first entry kept verbatim; absent if none is. */
  firstKeptEntryId?: EntryId;
  /** Older entries kept verbatim, placed between the summary and the first kept entry. */
  keptEntryIds?: Array<EntryId>;
  /** Entries whose tool results are shown as a short note from here on. */
  clearedEntryIds?: Array<EntryId>;
  /** Tokens of the next request before this compaction. */
  tokensBefore: number;
  /** Tokens of the same request after it; absent in histories made elsewhere. */
  tokensAfter?: number;
  /** Its trigger; absent in histories made elsewhere. */
  trigger?: CompactionTrigger;
  /** Its duration in milliseconds; absent in histories made elsewhere. */
  durationMs?: number;
  /** Files that the summarised part read and modified, as named by tools; accumulates over compactions. */
  details?: CompactionDetails;
  /**
   * The system prompt, the tools and the options after all patches before this compaction, so that earlier patches
   * need not be read.
   */
  carriedPatch?: Array<PatchOp>;
  /** The form of the summary; absent if none was made, if a hook made it, and in older entries. */
  form?: SummaryForm;
  /**
   * The user's constraints, verbatim, as older versions recognised them. They are still sent; new ones are not
   * looked for, because the user's messages are kept as they are.
   */
  constraints?: Array<string>;
  /** The hook that provided the summary, or named the model that made it. */
  hook?: string;
  /** Data that the hook stores with it. */
  hookDetails?: unknown;
  /**
   * Characters of tool results, arguments and reasoning that no summary request contained: the conversation did not
   * fit one request.
   */
  leftOut?: number;
  /** The fallback step that succeeded; absent in older histories and in those made elsewhere. */
  rung?: CompactionRung;
  /** The steps before it that failed or saved too little. */
  failedRungs?: Array<FailedRung>;
  /** The retention of exact facts by the summary, in entries of older versions. */
  retained?: Retained;
  /** The usage of the summary requests together. */
  summaryUsage?: Usage;
  /**
   * True if the session offers the tools that search its history from here on: the text around the summary names
   * them.
   */
  historyTools?: boolean;
}

/**
 * A part of a compaction's summary: what the user said in a stretch of the session, word for word, and what the model
 * wrote about the rest of it. Later compactions keep it byte for byte until it is merged with others.
 */
export interface SummarySegment {
  /** Its length within `summary`, in bytes of UTF-8. Segments follow one another without gaps. */
  bytes: number;
  /** The user's messages in it, oldest first; its text precedes the model's. */
  said?: Array<SaidByUser> | null;
}

/** A message of the user that a segment quotes word for word. A long one has a note in its middle. */
export interface SaidByUser {
  /** Its entry; absent for a constraint that an older version had recorded. */
  entryId?: EntryId;
  /** The length of its text, in bytes of UTF-8. */
  bytes: number;
}

/** Files used by the summarised part. */
export interface CompactionDetails {
  /** Files read and not modified, sorted. */
  readFiles: Array<string>;
  /** Files written or edited, sorted. */
  modifiedFiles: Array<string>;
}

/** The form of a summary. */
export type SummaryForm = "sections" | "free";

/** A summary of an abandoned branch. */
export interface BranchSummary {
  /** The entry from which the session continued; `null` for before the first. */
  fromId: EntryId | null;
  /** The leaf of the abandoned branch. */
  leftLeafId?: EntryId;
  /** The summary, as the model will read it. */
  summary: string;
  /** Files that the abandoned branch read and modified; absent in histories made elsewhere. */
  details?: CompactionDetails;
  /** The usage of the summary requests; absent if no model was used. */
  summaryUsage?: Usage;
  /** The hook that provided the summary. */
  hook?: string;
  /** Data that the hook stores with it. */
  hookDetails?: unknown;
}

/**
 * An entry's data in this version's form, or in another one, kept without interpretation. For clients: a field may be
 * missing or have another meaning, so check before using it.
 */
export type Kept<T> = T | Partial<T>;

/** A client's data, never sent to the model. */
export interface Custom {
  /** The kind of data, chosen by the client. */
  customType: string;
  /** The data, any JSON. */
  data?: unknown;
}

/** A client's message, sent to the model in the user's role. */
export interface CustomMessage {
  /** The kind of message, chosen by the client. */
  customType: string;
  /** Its content for the model. */
  content: Array<Part>;
  /** True if it should be shown to people. */
  display: boolean;
  /** Further data for programs; never sent to the model. */
  details?: unknown;
}

/** A change of the model. */
export interface ModelChange {
  /** The provider, in histories made elsewhere. */
  provider?: string;
  /** The model's name. */
  model: string;
}

/** A change of the reasoning effort. */
export interface ThinkingLevelChange {
  /** The effort in the provider's own terms; `default` leaves it to the provider. */
  thinkingLevel: string;
}

/** A label for another entry. */
export interface Label {
  /** The labelled entry. */
  targetId: EntryId;
  /** The label; absent to remove it. */
  label?: string;
}

/** The session's name. */
export interface SessionInfo {
  /** The name. */
  name: string;
}

/** An entry of a type unknown to this version. */
export interface Foreign {
  /** Its type in the imported file. */
  foreignType: string;
  /** Its other fields. */
  data: Record<string, unknown>;
}
