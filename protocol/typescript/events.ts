// Written from the Rust types by `UPDATE=1 cargo test -p reseed-protocol`. Do not edit.

import type { CallId, CommandId, EntryId, JobId, SessionId, Timestamp, TurnId } from "./basics.js";
import type { SessionRole } from "./commands.js";
import type { StopReason, Usage } from "./content.js";
import type { Breakdown, ContextInfo } from "./context.js";
import type { Entry, SummaryForm } from "./entries.js";
import type { ErrorBody, ErrorCode } from "./errors.js";
import type { HookCall, HookOffer, HookPoint } from "./hooks.js";
import type { Pin, QueueItem, SessionItem, SessionSettings } from "./replies.js";

/** Why a compaction was done. */
export type CompactionTrigger = "manual" | "threshold" | "overflow" | "strategy";

/** Which way of making room a compaction took, gentle to drastic. */
export type CompactionRung =
  | "clear_tool_results"
  | "model_summary"
  | "chunked_summary"
  | "extract"
  | "truncate"
  | "hook_summary";

/** A way of making room that did not do. */
export interface FailedRung {
  /** Which. */
  rung: CompactionRung;
  /**
   * Why not, in a word for programs: `too_little`, `empty`, `truncated`, `refused`, `malformed`, `continued`
   * (the model answered the user instead), `not_smaller`, `timeout`, or an error code.
   */
  reason: string;
}

/** How well a summary kept what is exact: paths, addresses, numbers, names, open tasks. */
export interface Retained {
  /** How many were looked for. */
  checked: number;
  /** How many of them the summary had lost and were put back word for word. */
  restored: number;
}

/** How a turn ended. */
export type TurnStatus = "completed" | "failed" | "cancelled" | "interrupted";

/** Payload of `compaction_prepared`. Nothing has changed yet: the next request is as it was. */
export interface CompactionPrepared {
  /** The job. `context_compacted` names it when it is committed, `compaction_failed` when it is dropped. */
  jobId: JobId;
  /** Why it was begun. */
  trigger: CompactionTrigger;
  /** Which way of making room it takes. */
  rung: CompactionRung;
  /** Tokens of the next request now. */
  tokenCount: number;
  /** Tokens of the next request if it were committed now. */
  newTokenCount: number;
  /**
   * It is committed before the first request of more tokens than this; absent where the strategy never compacts
   * by count.
   */
  compactAtTokens?: number;
  /** Milliseconds it took. */
  durationMs: number;
  /** What the summary requests cost together; absent where the model was not asked. */
  summaryUsage?: Usage;
}

/** A durable event: one stored record, under `seq` in the envelope. */
export type Event =
  | { type: "entry_appended"; payload: EntryAppended }
  | { type: "turn_started"; payload: TurnStarted }
  | { type: "turn_finished"; payload: TurnFinished }
  | { type: "tool_call"; payload: ToolCall }
  | { type: "request_resolved"; payload: RequestResolved }
  | { type: "queue_changed"; payload: QueueChanged }
  | { type: "session_updated"; payload: SessionUpdated }
  | { type: "context_compacted"; payload: ContextCompacted }
  | { type: "compaction_undone"; payload: CompactionUndone }
  | { type: "compaction_failed"; payload: CompactionFailed };

/** Payload of `entry_appended`. */
export interface EntryAppended {
  /** The entry, as `get_entries` returns it. */
  entry: Entry;
  /** The turn it belongs to. */
  turnId?: TurnId;
  /** The command that caused it. */
  commandId?: CommandId;
}

/** Payload of `turn_started`. */
export interface TurnStarted {
  /** The turn. */
  turnId: TurnId;
  /** The commands whose input it answers. */
  commandIds: Array<CommandId>;
  /** The loop's generation. */
  generation: number;
}

/** Payload of `turn_finished`. */
export interface TurnFinished {
  /** The turn. */
  turnId: TurnId;
  /** How it ended. */
  status: TurnStatus;
  /** Why the last answer ended. */
  finishReason?: StopReason;
  /** What went wrong, on `failed`. */
  error?: ErrorBody;
  /** What the turn's requests cost together. */
  usage?: Usage;
  /** The part of it for an answer that is not stored, since a hook failed that had to look at it first. */
  withheldUsage?: Usage;
  /** How full the window is now. */
  contextInfo: ContextInfo;
}

/** Payload of `tool_call`. */
export interface ToolCall {
  /** The call; delivered at least once. */
  callId: CallId;
  /** Its turn. */
  turnId: TurnId;
  /** The tool. */
  name: string;
  /** The arguments, JSON text that the tool's schema accepts. */
  arguments: string;
  /** When it fails without an answer. */
  deadline: Timestamp;
}

/** Payload of `request_resolved`. */
export interface RequestResolved {
  /** The call. */
  callId: CallId;
  /** What became of it. */
  outcome: CallOutcome;
}

/** What became of a tool call. */
export type CallOutcome = "answered" | "failed" | "timed_out" | "dropped";

/** Payload of `queue_changed`. */
export interface QueueChanged {
  /** The inputs that wait, first in line first. */
  items: Array<QueueItem>;
}

/** Payload of `session_updated`: what is absent has not changed. */
export interface SessionUpdated {
  /** The session's name. */
  name?: string;
  /** The model. */
  model?: string;
  /** The strategy's short name. */
  strategy?: string;
  /** The other settings, all of them. */
  settings?: SessionSettings;
  /** The entry from which the session goes on; `null` before the first. */
  leafId?: EntryId | null;
  /** The entries that every compaction keeps word for word, all of them. */
  pins?: Array<Pin>;
  /** How often the loop was seeded. */
  generation?: number;
  /** The compaction that is held from now on. For the server, which reads it back after a restart. */
  held?: HeldCompaction;
  /**
   * The required hooks of its client that work of the session needs from now on, all of them: their names and
   * where they are asked. For the server, which reads them back after a restart.
   */
  hooks?: Array<HookOffer>;
  /** The command that caused it. */
  commandId?: CommandId;
}

/** A compaction that is prepared and not yet committed, as the log keeps it. */
export interface HeldCompaction {
  /** The job that prepared it. */
  jobId: JobId;
  /** What the server needs to commit it. Its form is the server's own and may change. */
  record: unknown;
}

/** Payload of `context_compacted`. Before and after are counted over the same pending request. */
export interface ContextCompacted {
  /** Tokens of the next request before. */
  oldTokenCount: number;
  /** Tokens of the next request after. */
  newTokenCount: number;
  /** By how much it shrank, in percent, 0 to 100. */
  reductionPercent: number;
  /** The strategy: its short name on v2, its class-style name on v1. */
  strategy: string;
  /** The job. */
  jobId: JobId;
  /** The command that asked for it. */
  commandId?: CommandId;
  /** The compaction's entry. */
  entryId: EntryId;
  /** The first entry kept word for word. */
  firstKeptEntryId?: EntryId;
  /** Older entries kept word for word. */
  keptEntryIds: Array<EntryId>;
  /** Entries whose tool results are shown as a short note from now on. */
  clearedEntryIds?: Array<EntryId>;
  /** Why it was done. */
  trigger: CompactionTrigger;
  /** Whether it was made while turns went on. */
  background?: boolean;
  /** Which way of making room it took. */
  rung: CompactionRung;
  /** The gentler ways that were tried before, and why they did not do. */
  failedRungs?: Array<FailedRung>;
  /** The summary. */
  summary: string;
  /** Its form; absent where none was made, where a hook made it, and in older logs. */
  form?: SummaryForm;
  /** The generation of the loop that was seeded. */
  generation: number;
  /** Milliseconds it took. */
  durationMs: number;
  /** Milliseconds a user waited for it. */
  pausedMs: number;
  /** What the summary requests cost together; absent where the model was not asked. */
  summaryUsage?: Usage;
  /** Tokens that the provider had in its cache and will have to read anew. */
  cachedTokensLost: number;
  /** What of the summary was looked after; absent where nothing was summarised, and in older logs. */
  retained?: Retained;
  /** The count above which the strategy compacts by itself; absent where it never does by count. */
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
  /** The command that asked for it. */
  commandId?: CommandId;
  /** The generation of the loop that was seeded. */
  generation: number;
  /** How full the window is now. */
  contextInfo: ContextInfo;
}

/** Payload of `compaction_failed`. */
export interface CompactionFailed {
  /** The job. */
  jobId: JobId;
  /** The command that asked for it. */
  commandId?: CommandId;
  /** Why it was begun; absent for the summary of a branch that is left. */
  trigger?: CompactionTrigger;
  /** Whether it was begun while turns went on. */
  background?: boolean;
  /** The ways of making room that were tried, and why they did not do. */
  failedRungs?: Array<FailedRung>;
  /** Milliseconds it took; 0 where it was not begun. */
  durationMs: number;
  /** Milliseconds a user waited for it. */
  pausedMs: number;
  /** What its summary requests cost together, where a compaction that was held is dropped. */
  unusedUsage?: Usage;
  /** An error code. */
  code: ErrorCode;
  /** What went wrong. */
  message: string;
}

/** An ephemeral event: it has no `seq`, is not stored, and may be missed. */
export type EphemeralEvent =
  | { type: "item_started"; payload: ItemStarted }
  | { type: "item_delta"; payload: ItemDelta }
  | { type: "item_aborted"; payload: ItemAborted }
  | { type: "call_progressed"; payload: CallProgressed }
  | { type: "hook_call"; payload: HookCall }
  | { type: "hook_cancelled"; payload: HookCancelled }
  | { type: "hook_failed"; payload: HookFailed }
  | { type: "tool_cancelled"; payload: ToolCancelled }
  | { type: "compaction_started"; payload: CompactionStarted }
  | { type: "compaction_progress"; payload: CompactionProgress }
  | { type: "compaction_prepared"; payload: CompactionPrepared }
  | { type: "context_warning"; payload: ContextWarning }
  | { type: "context_updated"; payload: ContextUpdated }
  | { type: "role_changed"; payload: RoleChanged }
  | { type: "session_changed"; payload: SessionItem };

/** Payload of `item_started`. */
export interface ItemStarted {
  /** The id that its entry will have. */
  itemId: EntryId;
  /** Its turn. */
  turnId: TurnId;
  /** `message`. */
  kind: string;
}

/** Payload of `item_delta`. */
export interface ItemDelta {
  /** The item. */
  itemId: EntryId;
  /** The part of it. */
  part: number;
  /** Where the text goes, in UTF-16 code units from the part's beginning. */
  offset: number;
  /** What kind of part this is; absent for text. */
  kind?: DeltaKind;
  /** The piece. */
  text: string;
}

/** What kind of part a delta belongs to. */
export type DeltaKind = "text" | "reasoning";

/** Payload of `item_aborted`. */
export interface ItemAborted {
  /** The item. */
  itemId: EntryId;
  /** Why: an error code. */
  reason: string;
}

/** Payload of `call_progressed`. */
export interface CallProgressed {
  /** The call. */
  callId: CallId;
  /** What the tool is doing. */
  message?: string;
  /** When it fails without an answer now. */
  deadline: Timestamp;
}

/** Payload of `hook_cancelled`: nobody waits for the answer any more. */
export interface HookCancelled {
  /** The call. */
  callId: CallId;
  /** The session. */
  sessionId: SessionId;
  /** Why: `timed_out`, or `dropped` where what it was asked about is over. */
  outcome: CallOutcome;
}

/** Payload of `hook_failed`. */
export interface HookFailed {
  /** The hook. */
  hook: string;
  /** Where it was asked. */
  event: HookPoint;
  /** The running turn. */
  turnId?: TurnId;
  /** An error code. */
  code: ErrorCode;
  /** What went wrong. */
  message: string;
}

/**
 * Payload of `tool_cancelled`: nobody waits for the answer any more. What is durable about it is
 * `request_resolved`.
 */
export interface ToolCancelled {
  /** The call. */
  callId: CallId;
  /** The tool. */
  name: string;
  /** The turn that made it. */
  turnId: TurnId;
  /** Why: `timed_out`, or `dropped` where its turn ended. */
  outcome: CallOutcome;
}

/** Payload of `compaction_started`. */
export interface CompactionStarted {
  /** The job. */
  jobId: JobId;
  /** Why. */
  trigger: CompactionTrigger;
  /** Whether turns go on meanwhile. */
  background: boolean;
}

/** Payload of `compaction_progress`. */
export interface CompactionProgress {
  /** The job. */
  jobId: JobId;
  /** What it is at: `summarising`, or `summarising_branch` for a branch that is left. */
  phase: string;
  /** Steps done. */
  done: number;
  /** Steps in all. */
  total: number;
}

/** Payload of `context_warning`. */
export interface ContextWarning {
  /** Of the window, in percent, held within 0 to 100. */
  usagePercent: number;
  /** A sentence for the user. */
  message: string;
}

/** Payload of `context_updated`. */
export interface ContextUpdated {
  /** The running turn. */
  turnId: TurnId;
  /** How full the window is. A reader that is behind is given the newest one alone. */
  contextInfo: ContextInfo;
}

/** Payload of `role_changed`. */
export interface RoleChanged {
  /** What this connection is to the session now. */
  role: SessionRole;
}
