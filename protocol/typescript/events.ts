// Written from the Rust types by `UPDATE=1 cargo test -p reseed-protocol`. Do not edit.

import type { Approval, ApprovalOption, StandingApproval } from "./approvals.js";
import type { ApprovalId, CallId, CommandId, ConnectionId, EntryId, JobId, LeafId, Timestamp, TurnId } from "./basics.js";
import type { SessionRole, Software } from "./commands.js";
import type { StopReason, Usage } from "./content.js";
import type { Breakdown, ContextInfo } from "./context.js";
import type { Entry, SummaryForm } from "./entries.js";
import type { ErrorBody, ErrorCode } from "./errors.js";
import type { HookCall, HookOffer, HookPoint } from "./hooks.js";
import type { Pin, QueueItem, SessionItem, SessionSettings } from "./replies.js";

/** Who runs a tool call. */
export type ToolPlace = "client" | "server";

/** The trigger of a compaction. */
export type CompactionTrigger = "manual" | "threshold" | "overflow" | "strategy";

/** The compaction step that succeeded, from gentle to drastic. */
export type CompactionRung =
  | "clear_tool_results"
  | "model_summary"
  | "chunked_summary"
  | "extract"
  | "truncate"
  | "hook_summary";

/** A compaction step that failed or saved too little. */
export interface FailedRung {
  /** The step. */
  rung: CompactionRung;
  /**
   * The reason, for programs: `too_little`, `empty`, `truncated`, `refused`, `malformed`, `continued` (the model
   * answered the user instead), `not_smaller`, `timeout`, or an error code.
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

/** The connection that hosts a session's tools and hooks. */
export interface Host {
  /** The connection; the last one if it is away. */
  connectionId: ConnectionId;
  /** Its `clientId`. A new connection of this client hosts in its place. */
  clientId?: string;
  /** True if it is not connected. */
  away?: boolean;
}

/** A connection that is subscribed to a session. */
export interface Participant {
  /** The connection. */
  connectionId: ConnectionId;
  /** Its `clientId`. */
  clientId?: string;
  /** The client program. */
  client?: Software;
  /** Its role. */
  role: SessionRole;
  /** True if it offers tools or hooks: it hosts the session, or is on standby. */
  offers?: boolean;
}

/** The end of a turn. */
export type TurnStatus = "completed" | "failed" | "cancelled" | "interrupted";

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

/** A durable event: one stored record, with its `seq` in the envelope. */
export type Event =
  | { type: "entry_appended"; payload: EntryAppended }
  | { type: "turn_started"; payload: TurnStarted }
  | { type: "turn_finished"; payload: TurnFinished }
  | { type: "tool_call"; payload: ToolCall }
  | { type: "approval_request"; payload: Approval }
  | { type: "call_resolved"; payload: CallResolved }
  | { type: "queue_item_added"; payload: QueueItemAdded }
  | { type: "queue_item_removed"; payload: QueueItemRemoved }
  | { type: "queue_reordered"; payload: QueueReordered }
  | { type: "queue_released"; payload: QueueReleased }
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
  /** Its status. */
  status: TurnStatus;
  /** The reason the last answer ended. */
  finishReason?: StopReason;
  /** The error, on `failed`. */
  error?: ErrorBody;
  /** The usage of the turn's requests together. */
  usage?: Usage;
  /** The part of it for an answer that was not stored, because a hook that had to check it failed. */
  withheldUsage?: Usage;
  /** The size of the context. */
  contextInfo: ContextInfo;
}

/** Payload of `tool_call`. */
export interface ToolCall {
  /** The call; delivered at least once. */
  toolCallId: CallId;
  /** Its turn. */
  turnId: TurnId;
  /** The tool. */
  name: string;
  /** The arguments, JSON text that the tool's schema accepts. */
  arguments: string;
  /** The time at which it fails if it is not answered. */
  deadline: Timestamp;
  /** Who runs it. */
  place?: ToolPlace;
}

/** Payload of `call_resolved`. */
export interface CallResolved {
  /** The call. */
  toolCallId: CallId;
  /** Its outcome. */
  outcome: CallOutcome;
  /** The approval that is decided; absent if the call itself is over. */
  approvalId?: ApprovalId;
  /** The answer; absent if there was none. */
  option?: ApprovalOption;
  /** The client that answered. */
  by?: string;
}

/** The outcome of a tool call. */
export type CallOutcome =
  | "answered"
  | "failed"
  | "timed_out"
  | "dropped"
  | "allowed"
  | "rejected"
  | "expired";

/** Payload of `queue_item_added`. */
export interface QueueItemAdded {
  /** Its position in the queue; 0 is the first. */
  position: number;
  /** The input. */
  item: QueueItem;
}

/** Payload of `queue_item_removed`. */
export interface QueueItemRemoved {
  /** The command that sent the input. */
  commandId: CommandId;
  /** The reason. */
  reason: QueueRemovalReason;
  /** The turn that it started or joined. */
  turnId?: TurnId;
  /** The entry that holds it now, appended by one of the next events. Absent if it was cancelled. */
  entryId?: EntryId;
  /** The `edit_queue` that cancelled it. */
  cancelledBy?: CommandId;
}

/** The reason an input left the queue. */
export type QueueRemovalReason = "started" | "steered" | "appended" | "cancelled";

/** Payload of `queue_reordered`. */
export interface QueueReordered {
  /** The commands that sent the queued inputs, first in line first. */
  order: Array<CommandId>;
  /** The command that caused it. */
  commandId?: CommandId;
}

/** Payload of `queue_released`: no queued input has `after` any more. */
export interface QueueReleased {
  /** The command that caused it: the move, or `edit_queue`. */
  commandId?: CommandId;
}

/** Payload of `session_updated`: absent fields have not changed. */
export interface SessionUpdated {
  /** The session's name. */
  name?: string;
  /** The model. */
  model?: string;
  /** The strategy's short name. */
  strategy?: string;
  /** All of the other settings. */
  settings?: SessionSettings;
  /** The session's leaf, from which it continues. */
  leafId?: LeafId;
  /** All entries that every compaction keeps verbatim. */
  pins?: Array<Pin>;
  /** All lasting answers to approvals. */
  standingApprovals?: Array<StandingApproval>;
  /** The number of times that the loop was seeded. */
  generation?: number;
  /** The compaction that is now held. For the server, which reads it back after a restart. */
  held?: HeldCompaction;
  /**
   * All required client hooks that the session's work now needs: their names and extension points. For the
   * server, which reads them back after a restart.
   */
  hooks?: Array<HookOffer>;
  /** The command that caused it. */
  commandId?: CommandId;
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
  /** The facts checked in the summary; absent if nothing was summarised, and in older logs. */
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

/** An ephemeral event: it has no `seq`, is not stored, and may be missed. */
export type EphemeralEvent =
  | { type: "item_started"; payload: ItemStarted }
  | { type: "item_delta"; payload: ItemDelta }
  | { type: "item_finished"; payload: ItemFinished }
  | { type: "request_delayed"; payload: RequestDelayed }
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
  | { type: "run_tool"; payload: RunTool }
  | { type: "host_changed"; payload: HostChanged }
  | { type: "presence_changed"; payload: PresenceChanged }
  | { type: "session_closed"; payload: SessionClosed }
  | { type: "session_changed"; payload: SessionItem }
  | { type: "token_expiring"; payload: TokenExpiring };

/** Payload of `item_started`. */
export interface ItemStarted {
  /** The id that its entry will have. */
  itemId: EntryId;
  /** Its turn. */
  turnId: TurnId;
  /** What starts. */
  kind: ItemKind;
  /** The part of the item that starts; on tool calls. */
  part?: number;
  /** The tool's name; on tool calls. */
  name?: string;
}

/** What starts streaming. */
export type ItemKind = "message" | "tool_call";

/** Payload of `item_delta`. */
export interface ItemDelta {
  /** The item. */
  itemId: EntryId;
  /** The part of it. */
  part: number;
  /** The position of the text, in UTF-16 code units from the start of the part. */
  offset: number;
  /** The kind of part; absent for text. */
  kind?: DeltaKind;
  /** The text. */
  text: string;
}

/** The kind of text in a delta. */
export type DeltaKind = "text" | "reasoning" | "arguments";

/** Payload of `item_finished`. */
export interface ItemFinished {
  /** The item. */
  itemId: EntryId;
  /** The tool call in it that is complete; absent if the whole item is. */
  part?: number;
}

/** Payload of `request_delayed`. The wait is over when the answer starts, the turn ends, or another wait begins. */
export interface RequestDelayed {
  /** The running turn. */
  turnId: TurnId;
  /** The attempt that follows the wait: 2 after the first one has failed. */
  attempt: number;
  /** The milliseconds until then. */
  waitMs: number;
  /**
   * Why the last attempt failed: `upstream_rate_limited`, `upstream_overloaded`, `upstream_unreachable`,
   * `upstream_error` or `upstream_truncated`.
   */
  reason: ErrorCode;
}

/** Payload of `item_aborted`. */
export interface ItemAborted {
  /** The item. */
  itemId: EntryId;
  /** An error code. */
  reason: string;
}

/** Payload of `call_progressed`. */
export interface CallProgressed {
  /** The tool call, if a tool reported. */
  toolCallId?: CallId;
  /** The hook call, if a hook reported. */
  hookCallId?: CallId;
  /** The current activity. */
  message?: string;
  /** The new time at which it fails if it is not answered. */
  deadline: Timestamp;
}

/** Payload of `hook_cancelled`: the answer is no longer awaited. */
export interface HookCancelled {
  /** The call. */
  hookCallId: CallId;
  /** `timed_out`, or `dropped` if what the hook was called for is over. */
  outcome: CallOutcome;
}

/** Payload of `hook_failed`. */
export interface HookFailed {
  /** The hook. */
  hook: string;
  /** Its extension point. */
  point: HookPoint;
  /** The running turn. */
  turnId?: TurnId;
  /** The error. */
  error: ErrorBody;
}

/** Payload of `tool_cancelled`: the answer is no longer awaited. The durable event is `call_resolved`. */
export interface ToolCancelled {
  /** The call. */
  toolCallId: CallId;
  /** The tool. */
  name: string;
  /** The turn that made it. */
  turnId: TurnId;
  /** `timed_out`, or `dropped` if its turn ended. */
  outcome: CallOutcome;
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

/** Payload of `context_warning`. */
export interface ContextWarning {
  /** The request's share of the window, not clamped. */
  usageRatio: number;
  /** A sentence for the user. */
  message: string;
  /** The cause, for programs; older servers leave it out. */
  code?: ContextWarningCode;
}

/** The cause of a `context_warning`. */
export type ContextWarningCode = "nearly_full" | "window_unknown" | "context_truncated_upstream";

/** Payload of `context_updated`. */
export interface ContextUpdated {
  /** The running turn. */
  turnId: TurnId;
  /** The size of the context. A slow reader only receives the newest. */
  contextInfo: ContextInfo;
}

/** Payload of `run_tool`. The call itself is the durable event `tool_call`, which comes first. */
export interface RunTool {
  /** The call. */
  toolCallId: CallId;
  /** True if this client was asked before, on an earlier connection: it ignores this if the tool is still running. */
  again?: boolean;
}

/** Payload of `host_changed`. */
export interface HostChanged {
  /** The host; absent if there is none any more. */
  host?: Host;
}

/** Payload of `presence_changed`. */
export interface PresenceChanged {
  /** The connection, as it is now. */
  connection: Participant;
  /** True if it has left. */
  left?: boolean;
}

/** Payload of `session_closed`. */
export interface SessionClosed {
  /** Why it ended. */
  code: SubscriptionEnd;
  /** The same for people. */
  message: string;
  /** True if `open_session` with `resume` may succeed. */
  retriable: boolean;
  /** The error behind it, if it is known. */
  error?: ErrorBody;
}

/** Why a subscription ended. */
export type SubscriptionEnd = "deleted" | "failed" | "moved";

/** Payload of `token_expiring`. */
export interface TokenExpiring {
  /** The milliseconds until the server closes the connection with 4401, unless it is renewed. */
  expiresInMs: number;
}
