// Written from the Rust types by `UPDATE=1 cargo test -p reseed-protocol`. Do not edit.

import type { CommandId, EntryId, JobId, LeafId, Timestamp } from "./basics.js";
import type { NativeCompaction, Usage } from "./content.js";
import type { Breakdown, ContextInfo, PatchOp } from "./context.js";
import type { ErrorBody } from "./errors.js";

/** Payload of `start_compaction`. */
export interface StartCompaction {
  /**
   * The focus of the summary, or with `replaceInstructions` its whole prompt. At most 16 KiB, and at most a
   * quarter of the summary model's window; more is refused.
   */
  instructions?: string;
  /**
   * Replaces the server's own instructions for a summary, including its form, with `instructions` instead of
   * adding to them. Every summary request still says which part to summarise, that the conversation is data, and
   * the maximum number of words.
   */
  replaceInstructions?: boolean;
  /** Applies exactly the compaction of this preview. No other field is allowed with it. */
  previewId?: JobId;
  /** Uses this strategy once; absent: the session's, or a summary if that is `manual`. */
  strategy?: string;
  /** Builds the summary from the original entries instead of merging into the existing one. */
  rebuild?: boolean;
}

/** Payload of `preview_compaction`, with fields as in `start_compaction`. */
export interface PreviewCompaction {
  /**
   * The focus of the summary, or with `replaceInstructions` its whole prompt. At most 16 KiB, and at most a
   * quarter of the summary model's window; more is refused.
   */
  instructions?: string;
  /**
   * Replaces the server's own instructions for a summary, including its form, with `instructions` instead of
   * adding to them. Every summary request still says which part to summarise, that the conversation is data, and
   * the maximum number of words.
   */
  replaceInstructions?: boolean;
  /** Uses this strategy; absent: the session's. */
  strategy?: string;
  /** Builds the summary from the original entries. */
  rebuild?: boolean;
}

/** Payload of `cancel_compaction`. */
export interface CancelCompaction {
  /** The compaction; absent for the running one. */
  jobId?: JobId;
}

/** Payload of `undo_compaction`. */
export interface UndoCompaction {
  /** The compaction's entry; absent for the one in effect. */
  entryId?: EntryId;
}

/** Payload of `pin_entry` and `unpin_entry`. */
export interface PinEntry {
  /** The entry: a message, or a client's message. A tool's result and its call are pinned together. */
  entryId: EntryId;
}

/** Payload of `set_context_strategy`. */
export interface SetContextStrategy {
  /** The strategy's name, such as `threshold` or `manual`; `unknown_strategy` lists those that the server offers. */
  strategy: string;
  /** The strategy's settings; absent ones keep the deployment's default. */
  settings?: StrategySettings;
}

/** Settings of the strategies. Each strategy reads its own. */
export interface StrategySettings {
  /**
   * Compacts when more than this fraction of the window is used; 0 to 1. The reserve for an answer can be
   * reached earlier.
   */
  threshold?: number;
  /**
   * Compacts when fewer than this many tokens are free for an answer; capped at half of the window. Absent:
   * `maxOutputTokens` of `set_options`, at most three quarters of the window, or else 2 % of the window, at
   * least 512 tokens and at most a fifth.
   */
  reserveTokens?: number;
  /** The approximate number of recent tokens kept verbatim. */
  keepRecentTokens?: number;
  /**
   * The fraction of the window that a compaction reduces the context to, or three quarters of the trigger if
   * that is less; above 0, at most 1.
   */
  target?: number;
  /** The fraction of the trigger at which a compaction is prepared in the background; 1 for never. */
  background?: number;
  /** The fraction of the request that a compaction must save; 0 to 0.9. */
  minGain?: number;
  /** The number of newest turns that `sliding_window` keeps; at least 1. */
  keepTurns?: number;
  /** The number of newest tool results that are never cleared. */
  keepToolResults?: number;
  /** Makes `importance` summarise what it removes; otherwise it is dropped. */
  summarise?: boolean;
  /** The strategies of a `pipeline`, from mild to drastic. */
  steps?: Array<string>;
  /** The kind of conversation, which determines what a summary must keep. */
  summaryKind?: SummaryKind;
  /**
   * The fraction of a compaction's target in which the user's own messages are kept word for word, newest
   * first; 0 to 1.
   */
  userShare?: number;
  /** How a compaction treats earlier summaries. */
  summaryMode?: SummaryMode;
}

/** The kind of conversation, which determines what its summary must keep. */
export type SummaryKind = "auto" | "chat" | "code" | "debugging" | "research";

/** What a compaction does with the summaries of earlier ones. */
export type SummaryMode = "segments" | "rewrite";

/** A compaction: nothing is deleted; the summary replaces the older entries in what the model sees. */
export interface Compaction {
  /** The summary, as the model will read it; empty if nothing was summarised. */
  summary: string;
  /**
   * The parts of the summary, oldest first; absent if it is one text that is rewritten as a whole, if a hook
   * made it, and in older entries.
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
   * The system prompt, the tools and the options after all patches before this compaction, so that earlier
   * patches need not be read.
   */
  carriedPatch?: Array<PatchOp>;
  /** The form of the summary; absent if none was made, if a hook made it, and in older entries. */
  form?: SummaryForm;
  /**
   * The user's constraints, verbatim, as older versions recognised them. They are part of `summary`
   * too. New entries have none, because the user's messages are kept as they are.
   */
  constraints?: Array<string>;
  /** The hook that provided the summary, or named the model that made it. */
  hook?: string;
  /** Data that the hook stores with it. */
  hookDetails?: unknown;
  /**
   * Characters of tool results, arguments and reasoning that no summary request contained, because the
   * conversation did not fit into one request.
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
  /** The provider's own form of the summary, which its model is sent instead of the text. */
  native?: NativeCompaction;
}

/**
 * A part of a compaction's summary: what the user said in a stretch of the session, word for word, and what the
 * model wrote about the rest of it. Later compactions keep it byte for byte until it is merged with others.
 */
export interface SummarySegment {
  /** Its length within `summary`, in bytes of UTF-8. Segments follow one another without gaps. */
  bytes: number;
  /** The user's messages in it, oldest first; its text precedes the model's. */
  said?: Array<SaidByUser>;
}

/** A message of the user that a segment quotes word for word. A long one has a note in its middle. */
export interface SaidByUser {
  /** Its entry; absent for a constraint that an older version had recorded. */
  entryId?: EntryId;
  /** The length of its text, in bytes of UTF-8. */
  bytes: number;
}

/** The trigger of a compaction. */
export type CompactionTrigger = "manual" | "threshold" | "overflow" | "strategy";

/** Files used by the summarised part. */
export interface CompactionDetails {
  /** Files read and not modified, sorted. */
  readFiles: Array<string>;
  /** Files written or edited, sorted. */
  modifiedFiles: Array<string>;
}

/** The form of a summary. */
export type SummaryForm = "sections" | "free";

/** The compaction step that succeeded, from gentle to drastic. */
export type CompactionRung =
  | "clear_tool_results"
  | "model_summary"
  | "chunked_summary"
  | "extract"
  | "truncate"
  | "hook_summary"
  | "provider_native";

/** A compaction step that failed or saved too little. */
export interface FailedRung {
  /** The step. */
  rung: CompactionRung;
  /**
   * The reason, for programs: `too_little`, `not_smaller`, `empty`, `truncated`, `refused`, `malformed`,
   * `continued` (the model answered the user instead), `copied` (it repeated the conversation), `timeout`, or an
   * error code.
   */
  reason: string;
}

/** The retention of exact facts by a summary: paths, addresses, numbers, names, open tasks. */
export interface Retained {
  /** The number of facts checked. */
  checked: number;
  /** The number of facts that the summary had lost and that were restored verbatim. */
  restored: number;
}

/** A failed compaction, with its position in the history. */
export interface FailedCompaction {
  /** The job. */
  jobId: JobId;
  /** The error. */
  error: ErrorBody;
  /** The newest entry when it failed. */
  leafId: LeafId;
}

/** A compaction that is running. */
export interface RunningCompaction {
  /** The job. */
  jobId: JobId;
  /** Its phase. */
  phase: string;
  /** True if turns continue meanwhile. */
  background?: boolean;
}

/** Payload of `compaction_prepared`. Nothing has changed yet: the next request is the same. */
export interface CompactionPrepared {
  /** The job. `context_compacted` names it when it is committed, `compaction_failed` when it is dropped. */
  jobId: JobId;
  /** Its trigger. */
  trigger: CompactionTrigger;
  /** The fallback step that succeeded. */
  rung: CompactionRung;
  /** Tokens of the next request. */
  tokensBefore: number;
  /** Tokens of the next request if it were committed now. */
  tokensAfter: number;
  /**
   * It is committed before the first request with more tokens than this; absent if the strategy never compacts
   * by count.
   */
  compactAtTokens?: number;
  /** Its duration in milliseconds. */
  durationMs: number;
  /** The usage of the summary requests together; absent if the model was not used. */
  summaryUsage?: Usage;
}

/** An entry that every compaction keeps verbatim. */
export interface Pin {
  /** The entry. */
  entryId: EntryId;
  /** The entry that was pinned, if this one only accompanies it: a tool result with its call. */
  with?: EntryId;
  /** The compaction that had removed it from the context when it was pinned; absent if the model saw it. */
  under?: EntryId;
}

/** Payload of `compaction_preview`: what `start_compaction { previewId }` would do. */
export interface CompactionPreview {
  /** Identifies it in `start_compaction`. */
  previewId: JobId;
  /** The time at which it expires. */
  expiresAt: Timestamp;
  /** The summary; empty if nothing would be summarised. */
  summary: string;
  /** Its form; absent if none would be made, and if a hook made it. */
  form?: SummaryForm;
  /** The fallback step that succeeded. */
  rung: CompactionRung;
  /** The steps tried before, and why each failed or saved too little. */
  failedRungs?: Array<FailedRung>;
  /** The first entry to be kept; absent if none would be. */
  firstKeptEntryId?: EntryId;
  /** Older entries to be kept verbatim. */
  keptEntryIds: Array<EntryId>;
  /** Entries whose tool results would be shown as a short note. */
  clearedEntryIds?: Array<EntryId>;
  /** The messages that the model would no longer see. */
  dropped: Stretch;
  /** The messages that it would still see, without the summary. */
  kept: Stretch;
  /** Tokens of the next request. */
  tokensBefore: number;
  /** Tokens of the same request after the compaction. */
  tokensAfter: number;
  /** The facts checked in the summary; only from older servers. */
  retained?: Retained;
  /** The usage of the summary requests; absent if the model was not used. */
  summaryUsage?: Usage;
}

/** Some messages of a context. */
export interface Stretch {
  /** The number of messages. */
  count: number;
  /** Their tokens. */
  tokens: number;
  /** The first one's entry. */
  from?: EntryId;
  /** The last one's entry. */
  to?: EntryId;
}

/** A prepared compaction that is not yet committed, as stored in the log. */
export interface HeldCompaction {
  /** The job that prepared it. */
  jobId: JobId;
  /** The server's data for the commit. Its form is internal and may change. */
  record: unknown;
}

/** Payload of `context_compacted`. Before and after are counted for the same pending request. */
export interface ContextCompacted {
  /** Tokens of the next request before. */
  tokensBefore: number;
  /** Tokens of the next request after. */
  tokensAfter: number;
  /** The reduction in percent, 0 to 100. */
  reductionPercent: number;
  /** The strategy: its short name on v2, its class-style name on v1. */
  strategy: string;
  /** The job. */
  jobId: JobId;
  /** The command that requested it. */
  commandId?: CommandId;
  /** The compaction's entry. */
  entryId: EntryId;
  /** The first entry kept verbatim. */
  firstKeptEntryId?: EntryId;
  /** Older entries kept verbatim. */
  keptEntryIds: Array<EntryId>;
  /** Entries whose tool results are shown as a short note from now on. */
  clearedEntryIds?: Array<EntryId>;
  /** Its trigger. */
  trigger: CompactionTrigger;
  /** True if it was made in the background. */
  background?: boolean;
  /** The fallback step that succeeded. */
  rung: CompactionRung;
  /** The steps tried before, and why each failed or saved too little. */
  failedRungs?: Array<FailedRung>;
  /** The summary. */
  summary: string;
  /** Its form; absent if none was made, if a hook made it, and in older logs. */
  form?: SummaryForm;
  /** The generation of the newly seeded loop. */
  generation: number;
  /** Its duration in milliseconds. */
  durationMs: number;
  /** The time that a user waited for it, in milliseconds. */
  pausedMs: number;
  /** The usage of the summary requests together; absent if the model was not used. */
  summaryUsage?: Usage;
  /** Tokens that the provider had cached and must process again. */
  cachedTokensLost: number;
  /** The facts checked in the summary; only in older logs. */
  retained?: Retained;
  /** The count above which the strategy compacts automatically; absent if it never does by count. */
  compactAtTokens?: number;
  /** Tokens by kind, before and after. */
  breakdown: BreakdownChange;
}

/** Tokens by kind, before and after. */
export interface BreakdownChange {
  /** Before. */
  before: Breakdown;
  /** After. */
  after: Breakdown;
}

/** Payload of `compaction_undone`. */
export interface CompactionUndone {
  /** The compaction's entry. */
  entryId: EntryId;
  /** The command that requested it. */
  commandId?: CommandId;
  /** The generation of the newly seeded loop. */
  generation: number;
  /** The size of the context. */
  contextInfo: ContextInfo;
}

/** Payload of `compaction_failed`. */
export interface CompactionFailed {
  /** The job. */
  jobId: JobId;
  /** The command that requested it. */
  commandId?: CommandId;
  /** Its trigger; absent for the summary of an abandoned branch. */
  trigger?: CompactionTrigger;
  /** True if it started in the background. */
  background?: boolean;
  /** The steps that were tried, and why each failed or saved too little. */
  failedRungs?: Array<FailedRung>;
  /** Its duration in milliseconds; 0 if it had not started. */
  durationMs: number;
  /** The time that a user waited for it, in milliseconds. */
  pausedMs: number;
  /** The usage of its summary requests together, if a held compaction is dropped. */
  summaryUsage?: Usage;
  /** The error. */
  error: ErrorBody;
}

/** Payload of `compaction_started`. */
export interface CompactionStarted {
  /** The job. */
  jobId: JobId;
  /** Its trigger. */
  trigger: CompactionTrigger;
  /** True if turns continue meanwhile. */
  background: boolean;
}

/** Payload of `compaction_progress`. */
export interface CompactionProgress {
  /** The job. */
  jobId: JobId;
  /** Its phase: `summarising`, or `summarising_branch` for an abandoned branch. */
  phase: string;
  /** Steps done. */
  done: number;
  /** Total steps. */
  total: number;
}
