// Written from the Rust types by `UPDATE=1 cargo test -p reseed-protocol`. Do not edit.

import type { CallId, EntryId, JobId, SessionId, Timestamp, TurnId } from "./basics.js";
import type { InputContent, NavigatePosition } from "./commands.js";
import type { Message, Part } from "./content.js";
import type { ContextEnvelope, ContextMessage } from "./context.js";
import type { CompactionDetails, Entry } from "./entries.js";
import type { CompactionTrigger } from "./events.js";
import type { SubmittedOp, TransformDisplay } from "./patch.js";

/** A hook that is offered. */
export interface HookOffer {
  /** Its name, in errors and on what it makes: 1 to 64 of `A-Za-z0-9._-`; absent: `client`. */
  name?: string;
  /** Where it is asked. */
  event: HookPoint;
  /** When, for `context`; absent: always. */
  reasons?: Array<ContextReason>;
  /** Milliseconds an answer may take; absent: the server's default. */
  timeoutMs?: number;
  /**
   * Whether a turn waits, until the time limit, for its client to come back where that is away; otherwise the hook
   * is passed over.
   */
  required?: boolean;
  /** Whether it is only told: nobody waits for it, and it changes nothing. */
  observe?: boolean;
}

/** Where hooks are asked. */
export type HookPoint =
  | "context"
  | "message"
  | "before_agent_start"
  | "before_compact"
  | "before_navigate"
  | "tool_call"
  | "tool_result";

/** When a `context` hook is asked. */
export type ContextReason = "before_request" | "ephemeral" | "turn_end";

/**
 * Payload of `hook_result`: the answer to a `hook_call`. Each point allows some of the fields, and what is
 * absent stays as it is.
 */
export interface HookResult {
  /** The call. */
  callId: CallId;
  /** The hook could not do its work, in a sentence. */
  error?: string;
  /** `context`: changes of the envelope, in order. */
  patch?: Array<SubmittedOp>;
  /** `context`: who made the patch; absent: the hook's name. */
  transformerName?: string;
  /** `context`: how the patch is shown to people. */
  display?: TransformDisplay;
  /** `message`: the message in its place; of the same role, with the same tool calls. Its role and content count. */
  message?: Message;
  /** `before_agent_start`: the system prompt for this turn. */
  systemPrompt?: string;
  /** `before_agent_start`: a message to keep and to send in the user's place. */
  customMessage?: HookMessage;
  /** `before_agent_start`: data to keep; the model never sees it. */
  entries?: Array<HookEntry>;
  /** `before_compact`, `before_navigate`: do not do it. */
  cancel?: boolean;
  /** `before_compact`, `before_navigate`: the summary; the model is not asked. */
  summary?: string;
  /**
   * `before_compact`, with a `summary`: the first entry that is kept word for word, where it is not the one that the
   * call names. It must be one that the model sees, and not stand between a call and its result.
   */
  firstKeptEntryId?: EntryId;
  /** `before_compact`, `before_navigate`: more for programs, kept with the summary. */
  details?: unknown;
  /** `before_compact`: the model that summarises. */
  model?: string;
  /** `before_compact`, `before_navigate`: what the summary should look at. */
  instructions?: string;
  /** `before_compact`, `before_navigate`: whether these take the place of the usual ones. */
  replaceInstructions?: boolean;
  /** `before_navigate`: a name for the place. */
  label?: string;
  /** `tool_call`: the tool may not be called; the model is told so. */
  block?: boolean;
  /** `tool_call`: why not, for the model. */
  reason?: string;
  /** `tool_call`: other arguments, JSON text that the tool's schema accepts. */
  arguments?: string;
  /** `tool_result`: the tool's answer. */
  output?: string;
  /** `tool_result`: whether it failed. */
  isError?: boolean;
}

/** A message that a hook adds. */
export interface HookMessage {
  /** What kind of message, 1 to 200 characters of the hook's own choice. */
  customType: string;
  /** What it says. */
  content: InputContent;
  /** Whether it should be shown to people. */
  display: boolean;
}

/** Data that a hook keeps. */
export interface HookEntry {
  /** What kind of data, 1 to 200 characters of the hook's own choice. */
  customType: string;
  /** The data, any JSON. */
  data: unknown;
}

/** A question to a hook: the payload of `hook_call`, and the body that a webhook gets. */
export type HookCall = {
  /** Names it; the answer carries the same. */
  callId: CallId;
  /** The hook's name. */
  hook: string;
  /** The session. */
  sessionId: SessionId;
  /** The running turn. */
  turnId?: TurnId;
  /** When it is too late; absent where no answer is waited for. */
  deadline?: Timestamp;
} & (
  | {
      event: "context";
      /** When. */
      reason: ContextReason;
      /** What would be sent. */
      envelope: ContextEnvelope;
    }
  | {
      event: "message";
      /** The entry that holds it, or, of an answer, will. */
      entryId: EntryId;
      /** The message: its role and its content. */
      message: Message;
    }
  | {
      event: "before_agent_start";
      /** The system prompt. */
      systemPrompt: string;
      /** What the user said. */
      input: Array<Part>;
    }
  | { event: "before_compact" } & CompactionPreparation
  | { event: "before_navigate" } & NavigationPreparation
  | {
      event: "tool_call";
      /** Names the tool's call. */
      toolCallId: CallId;
      /** The tool. */
      name: string;
      /** The arguments, JSON text that the tool's schema accepts. */
      arguments: string;
    }
  | {
      event: "tool_result";
      /** Names the tool's call. */
      toolCallId: CallId;
      /** The tool. */
      name: string;
      /** The arguments that it was called with, JSON text. */
      arguments: string;
      /** Its answer. */
      output: string;
      /** Whether it failed. */
      isError: boolean;
    }
);

/** What a compaction would be made of. */
export interface CompactionPreparation {
  /** The job. */
  jobId: JobId;
  /** Why it is made. */
  trigger: CompactionTrigger;
  /** Whether turns go on meanwhile. */
  background: boolean;
  /** Whether it is only to be looked at. */
  preview: boolean;
  /** What the user wants the summary to look at. */
  customInstructions?: string;
  /** The messages that would be summarised, the turn prefix left out. */
  messages: Array<ContextMessage>;
  /** The beginning of a turn that is cut through, and whose end is kept. */
  turnPrefix: Array<ContextMessage>;
  /** Both as text, in the form in which a summarising model reads them, for programs that need no structure. */
  conversation?: string;
  /** The summary of the compaction before, which the new one takes in. */
  previousSummary?: string;
  /** The summary that an earlier hook gave for this compaction. */
  summary?: string;
  /** Files that the summarised part read and modified, those of earlier compactions included. */
  files: CompactionDetails;
  /** Tokens of the next request now. */
  tokensBefore: number;
  /** The first entry that would be kept; absent when none is. */
  firstKeptEntryId?: EntryId;
  /** Older entries that would be kept. */
  keptEntryIds: Array<EntryId>;
  /** By what the compaction is made. */
  settings: CompactionSettings;
  /**
   * The entries of this branch as far as the model sees them, oldest first. Where the first has a parent there
   * are older ones: `get_entries` with `path` and `before` pages through them.
   */
  branchEntries: Array<Entry>;
  /** The newest entry of this branch; absent where it has none. */
  leafId?: EntryId;
}

/** By what a compaction is made. */
export interface CompactionSettings {
  /** The strategy. */
  strategy: string;
  /** The model that would summarise. */
  model: string;
  /** The window of the session's model, in tokens. */
  windowTokens: number;
  /** Tokens kept free for the answer. */
  reserveTokens: number;
  /** Tokens of recent entries that are kept. */
  keepRecentTokens: number;
  /** Tokens that the request is to come down to. */
  targetTokens: number;
}

/** What a move in the tree would do. */
export interface NavigationPreparation {
  /** The entry that it goes to; `null` for before the first. */
  targetId: EntryId | null;
  /** Where at it. */
  position: NavigatePosition;
  /** The entry from which the session goes on after it; `null` before the first. */
  newLeafId: EntryId | null;
  /** The entry from which the session goes on now; `null` before the first. */
  oldLeafId: EntryId | null;
  /** The deepest entry on both ways; `null` where there is none. */
  commonAncestorId: EntryId | null;
  /** The entries of the branch that is left, oldest first. */
  entriesToSummarize: Array<Entry>;
  /** Whether the user wants a summary of it. */
  userWantsSummary: boolean;
  /** What the user wants the summary to look at. */
  customInstructions?: string;
  /** Whether these take the place of the usual ones. */
  replaceInstructions: boolean;
  /** The name that the user, or an earlier hook, gives the place. */
  label?: string;
  /** The summary that an earlier hook gave. */
  summary?: string;
}

/**
 * What a hook answers; the body that a webhook sends back. Each point allows some of the fields, and what is
 * absent stays as it is.
 */
export interface HookAnswer {
  /** The hook could not do its work, in a sentence. */
  error?: string;
  /** `context`: changes of the envelope, in order. */
  patch?: Array<SubmittedOp>;
  /** `context`: who made the patch; absent: the hook's name. */
  transformerName?: string;
  /** `context`: how the patch is shown to people. */
  display?: TransformDisplay;
  /** `message`: the message in its place; of the same role, with the same tool calls. Its role and content count. */
  message?: Message;
  /** `before_agent_start`: the system prompt for this turn. */
  systemPrompt?: string;
  /** `before_agent_start`: a message to keep and to send in the user's place. */
  customMessage?: HookMessage;
  /** `before_agent_start`: data to keep; the model never sees it. */
  entries?: Array<HookEntry>;
  /** `before_compact`, `before_navigate`: do not do it. */
  cancel?: boolean;
  /** `before_compact`, `before_navigate`: the summary; the model is not asked. */
  summary?: string;
  /**
   * `before_compact`, with a `summary`: the first entry that is kept word for word, where it is not the one that the
   * call names. It must be one that the model sees, and not stand between a call and its result.
   */
  firstKeptEntryId?: EntryId;
  /** `before_compact`, `before_navigate`: more for programs, kept with the summary. */
  details?: unknown;
  /** `before_compact`: the model that summarises. */
  model?: string;
  /** `before_compact`, `before_navigate`: what the summary should look at. */
  instructions?: string;
  /** `before_compact`, `before_navigate`: whether these take the place of the usual ones. */
  replaceInstructions?: boolean;
  /** `before_navigate`: a name for the place. */
  label?: string;
  /** `tool_call`: the tool may not be called; the model is told so. */
  block?: boolean;
  /** `tool_call`: why not, for the model. */
  reason?: string;
  /** `tool_call`: other arguments, JSON text that the tool's schema accepts. */
  arguments?: string;
  /** `tool_result`: the tool's answer. */
  output?: string;
  /** `tool_result`: whether it failed. */
  isError?: boolean;
}
