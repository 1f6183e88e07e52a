// Written from the Rust types by `UPDATE=1 cargo test -p reseed-protocol`. Do not edit.

import type { CallId, EntryId, JobId, SessionId, Timestamp, TurnId } from "./basics.js";
import type { CompactionDetails, CompactionTrigger } from "./compaction.js";
import type { InputContent, Message, Part } from "./content.js";
import type { ContextEnvelope, ContextMessage, SubmittedOp, TransformDisplay } from "./context.js";
import type { ErrorBody } from "./errors.js";
import type { CallOutcome } from "./tools.js";
import type { Entry, NavigatePosition } from "./tree.js";

/** A hook offered by a client. */
export interface HookOffer {
  /** Its name, in errors and in what it creates: 1 to 64 of `A-Za-z0-9._-`. If absent, `client`. */
  name?: string;
  /** Its extension point. */
  point: HookPoint;
  /** The occasions on which it is called, for `context`; absent: always. */
  reasons?: Array<ContextReason>;
  /** The time limit of an answer in milliseconds; absent: the server's default. */
  timeoutMs?: number;
  /**
   * If true, nothing happens that the hook could not inspect, because it failed or its client was away for too
   * long. If false, its failure is reported, and the original is used. The default is true, unless `observe` is
   * true.
   */
  required?: boolean;
  /** If true, it is only notified: its answer is not awaited and changes nothing. */
  observe?: boolean;
}

/** The extension points. */
export type HookPoint =
  | "context"
  | "message"
  | "before_agent_start"
  | "before_compaction"
  | "before_navigate"
  | "tool_call"
  | "tool_result";

/** The occasions on which a `context` hook is called. */
export type ContextReason = "before_request" | "ephemeral" | "turn_end";

/** Payload of `register_hooks`. */
export interface RegisterHooks {
  /** The hooks, called in this order; empty for none. */
  hooks: Array<HookOffer>;
}

/**
 * Payload of `hook_result`: the answer to a `hook_call`. Each point allows some of the fields, and what is
 * absent stays unchanged.
 */
export interface HookResult {
  /** The call. */
  hookCallId: CallId;
  /** The hook failed; a sentence that says why. */
  error?: string;
  /** `context`: changes to the envelope, in order. */
  patch?: Array<SubmittedOp>;
  /** `context`: the author of the patch; if absent, the hook's name. */
  transformerName?: string;
  /** `context`: how the patch is shown to people. */
  display?: TransformDisplay;
  /**
   * `message`: the replacement message, with the same role and the same tool calls. Only its role and content
   * matter.
   */
  message?: Message;
  /** `before_agent_start`: the system prompt for this turn. */
  systemPrompt?: string;
  /** `before_agent_start`: a message to store and send in the user's role. */
  customMessage?: HookMessage;
  /** `before_agent_start`: data to store; the model never sees it. */
  entries?: Array<HookEntry>;
  /** `before_compaction`, `before_navigate`: cancels it. */
  cancel?: boolean;
  /** `before_compaction`, `before_navigate`: the summary; the model is not used. */
  summary?: string;
  /**
   * `before_compaction`, with a `summary`: the first entry kept verbatim, if other than the one in the call. The
   * model must see it, and it must not be between a call and its result.
   */
  firstKeptEntryId?: EntryId;
  /** `before_compaction`, `before_navigate`: further data for programs, stored with the summary. */
  details?: unknown;
  /** `before_compaction`: the model that summarises. */
  model?: string;
  /** `before_compaction`, `before_navigate`: instructions for the summary. */
  instructions?: string;
  /** `before_compaction`, `before_navigate`: true if these replace the usual instructions. */
  replaceInstructions?: boolean;
  /** `before_navigate`: a label for the target. */
  label?: string;
  /** `tool_call`: blocks the call, and tells the model. */
  block?: boolean;
  /** `tool_call`: the reason, for the model. */
  reason?: string;
  /** `tool_call`: other arguments, JSON text that the tool's schema accepts. */
  arguments?: string;
  /** `tool_result`: the tool's output. */
  output?: string;
  /** `tool_result`: true if the tool failed. */
  isError?: boolean;
}

/** A message that a hook adds. */
export interface HookMessage {
  /** The kind of message, chosen by the hook: 1 to 200 characters. */
  customType: string;
  /** Its content. */
  content: InputContent;
  /** True if it should be shown to people. */
  display: boolean;
}

/** Data that a hook stores. */
export interface HookEntry {
  /** The kind of data, chosen by the hook: 1 to 200 characters. */
  customType: string;
  /** The data, any JSON. */
  data: unknown;
}

/** A call to a hook: the payload of `hook_call`, and the body sent to a webhook. */
export type HookCall = {
  /** Identifies it; the answer carries the same id. */
  hookCallId: CallId;
  /** The hook's name. */
  hook: string;
  /** The session. */
  sessionId: SessionId;
  /** The running turn. */
  turnId?: TurnId;
  /** The deadline of its answer; absent if no answer is awaited. */
  deadline?: Timestamp;
} & (
  | {
      point: "context";
      /** The occasion. */
      reason: ContextReason;
      /** The envelope that would be sent. */
      envelope: ContextEnvelope;
    }
  | {
      point: "message";
      /** The entry that holds it, or, for an answer, will hold it. */
      entryId: EntryId;
      /** The message: its role and content. */
      message: Message;
    }
  | {
      point: "before_agent_start";
      /** The system prompt. */
      systemPrompt: string;
      /** The user's input. */
      input: Array<Part>;
    }
  | { point: "before_compaction" } & CompactionPreparation
  | { point: "before_navigate" } & NavigationPreparation
  | {
      point: "tool_call";
      /** Identifies the tool call. */
      toolCallId: CallId;
      /** The tool. */
      name: string;
      /** The arguments, JSON text that the tool's schema accepts. */
      arguments: string;
    }
  | {
      point: "tool_result";
      /** Identifies the tool call. */
      toolCallId: CallId;
      /** The tool. */
      name: string;
      /** The arguments of the call, JSON text. */
      arguments: string;
      /** Its output. */
      output: string;
      /** True if it failed. */
      isError: boolean;
    }
);

/** The compaction about to be made. */
export interface CompactionPreparation {
  /** The job. */
  jobId: JobId;
  /** Its trigger. */
  trigger: CompactionTrigger;
  /** True if turns continue meanwhile. */
  background: boolean;
  /** True if it is only a preview. */
  preview: boolean;
  /** The user's instructions for the summary. */
  customInstructions?: string;
  /** The messages to be summarised, without the turn prefix. */
  messages: Array<ContextMessage>;
  /** The first part of a turn that is split, whose end is kept. */
  turnPrefix: Array<ContextMessage>;
  /** Both as text, in the form that a summarising model reads, for programs that need no structure. */
  conversation?: string;
  /** The summary of the previous compaction, which the new one includes. */
  previousSummary?: string;
  /** The summary that an earlier hook provided for this compaction. */
  summary?: string;
  /** Files that the summarised part read and modified, including those of earlier compactions. */
  files: CompactionDetails;
  /** Tokens of the next request. */
  tokensBefore: number;
  /** The first entry to be kept; absent if none is. */
  firstKeptEntryId?: EntryId;
  /** Older entries to be kept. */
  keptEntryIds: Array<EntryId>;
  /** The settings of the compaction. */
  settings: CompactionSettings;
  /**
   * The entries of this branch as far as the model sees them, oldest first. If the first has a parent, there are
   * older ones: page through them with `get_entries`, `path` and `before`.
   */
  branchEntries: Array<Entry>;
  /** The newest entry of this branch; absent if it has none. */
  leafId?: EntryId;
}

/** The settings of a compaction. */
export interface CompactionSettings {
  /** The strategy. */
  strategy: string;
  /** The model that would summarise. */
  model: string;
  /** The window of the session's model, in tokens. */
  windowTokens: number;
  /** Tokens kept free for the answer. */
  reserveTokens: number;
  /** Tokens of recent entries to keep. */
  keepRecentTokens: number;
  /** Tokens that the request should be reduced to. */
  targetTokens: number;
}

/** A move in the tree about to be made. */
export interface NavigationPreparation {
  /** The target entry; `null` for before the first. */
  targetId: EntryId | null;
  /** The position relative to it. */
  position: NavigatePosition;
  /** The leaf after the move; `null` before the first entry. */
  newLeafId: EntryId | null;
  /** The current leaf; `null` before the first entry. */
  oldLeafId: EntryId | null;
  /** The deepest entry on both paths; `null` if there is none. */
  commonAncestorId: EntryId | null;
  /** The entries of the abandoned branch, oldest first. */
  entriesToSummarize: Array<Entry>;
  /** True if the user wants a summary of it. */
  userWantsSummary: boolean;
  /** The user's instructions for the summary. */
  customInstructions?: string;
  /** True if these replace the usual instructions. */
  replaceInstructions: boolean;
  /** The label that the user, or an earlier hook, gives the target. */
  label?: string;
  /** The summary that an earlier hook provided. */
  summary?: string;
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

/**
 * A hook's answer; the response body of a webhook. Each point allows some of the fields, and what is absent
 * stays unchanged.
 */
export interface HookAnswer {
  /** The hook failed; a sentence that says why. */
  error?: string;
  /** `context`: changes to the envelope, in order. */
  patch?: Array<SubmittedOp>;
  /** `context`: the author of the patch; if absent, the hook's name. */
  transformerName?: string;
  /** `context`: how the patch is shown to people. */
  display?: TransformDisplay;
  /**
   * `message`: the replacement message, with the same role and the same tool calls. Only its role and content
   * matter.
   */
  message?: Message;
  /** `before_agent_start`: the system prompt for this turn. */
  systemPrompt?: string;
  /** `before_agent_start`: a message to store and send in the user's role. */
  customMessage?: HookMessage;
  /** `before_agent_start`: data to store; the model never sees it. */
  entries?: Array<HookEntry>;
  /** `before_compaction`, `before_navigate`: cancels it. */
  cancel?: boolean;
  /** `before_compaction`, `before_navigate`: the summary; the model is not used. */
  summary?: string;
  /**
   * `before_compaction`, with a `summary`: the first entry kept verbatim, if other than the one in the call. The
   * model must see it, and it must not be between a call and its result.
   */
  firstKeptEntryId?: EntryId;
  /** `before_compaction`, `before_navigate`: further data for programs, stored with the summary. */
  details?: unknown;
  /** `before_compaction`: the model that summarises. */
  model?: string;
  /** `before_compaction`, `before_navigate`: instructions for the summary. */
  instructions?: string;
  /** `before_compaction`, `before_navigate`: true if these replace the usual instructions. */
  replaceInstructions?: boolean;
  /** `before_navigate`: a label for the target. */
  label?: string;
  /** `tool_call`: blocks the call, and tells the model. */
  block?: boolean;
  /** `tool_call`: the reason, for the model. */
  reason?: string;
  /** `tool_call`: other arguments, JSON text that the tool's schema accepts. */
  arguments?: string;
  /** `tool_result`: the tool's output. */
  output?: string;
  /** `tool_result`: true if the tool failed. */
  isError?: boolean;
}
