// Written from the Rust types by `UPDATE=1 cargo test -p reseed-protocol`. Do not edit.

import type { CommandId, EntryId, JobId, SessionId } from "./basics.js";
import type { BreakdownChange, CompactionRung, CompactionTrigger, FailedRung, Retained, SummaryForm } from "./compaction.js";
import type { InputItem, Usage } from "./content.js";
import type { Breakdown, Breaker, CompactAtRule, CountSource } from "./context.js";
import type { ErrorDetails } from "./errors.js";

/** A v1 command. */
export type Command =
  | { type: "user_input"; payload: UserInput }
  | { type: "get_context_info" }
  | { type: "manual_compact" }
  | { type: "approval_response"; payload: ApprovalResponse };

/** Payload of `user_input`. */
export interface UserInput {
  /** OpenAI Responses input items; unknown fields are ignored. */
  input: Array<InputItem>;
  /** Accepted and ignored. */
  previousResponseId?: string;
}

/** Payload of `approval_response`. */
export interface ApprovalResponse {
  /** The decision. */
  review: Review;
  /** An echo of a patch, as clients of the original send it. It is ignored in favour of the server's own copy. */
  applyPatch?: unknown;
  /** The message to the model on a denial. */
  customDenyMessage?: string;
  /** A client's explanation. */
  explanation?: string;
}

/** A decision on an approval. Upper-case spellings are accepted. */
export type Review = "yes" | "no-exit" | "no-continue" | "always" | "explain";

/**
 * Events sent to a v1 client; `context_info` and `context_compacted` have v2's fields with class-style strategy names,
 * and v1's own names for some.
 */
export type Event =
  | { type: "loading_state"; payload: LoadingState }
  | { type: "response_item"; payload: ResponseItem }
  | { type: "context_info"; payload: ContextInfo }
  | { type: "approval_request"; payload: ApprovalRequest }
  | { type: "context_compacted"; payload: ContextCompacted }
  | { type: "agent_finished"; payload: AgentFinished }
  | { type: "error"; payload: Error };

/** Payload of `loading_state`. */
export interface LoadingState {
  /** True if a turn is running. */
  loading: boolean;
}

/** Payload of `response_item`: one item of OpenAI's Responses API. */
export type ResponseItem =
  | {
      type: "message";
      /** Its own id: the original client concatenates texts with the same id. */
      id: string;
      /** `assistant`. */
      role: string;
      /** The text. */
      content: Array<ItemContent>;
    }
  | {
      type: "function_call";
      /** Its own id. */
      id: string;
      /** The call. */
      call_id: string;
      /** The tool. */
      name: string;
      /** The arguments, JSON text. */
      arguments: string;
    }
  | {
      type: "function_call_output";
      /** Its own id. */
      id: string;
      /** The call. */
      call_id: string;
      /** JSON text of `{ output, metadata: { exit_code, duration_seconds } }`. */
      output: string;
    }
  | {
      type: "reasoning";
      /** Its own id. */
      id: string;
      /** The reasoning text. */
      content: Array<ItemContent>;
      /** Empty; newer clients read `summary`. */
      summary: Array<ItemContent>;
    };

/** Text within an item. */
export type ItemContent =
  | {
      type: "output_text";
      /** The text. */
      text: string;
    }
  | {
      type: "input_text";
      /** The text. */
      text: string;
    };

/** Payload of `context_info`. */
export interface ContextInfo {
  /** `tokenCount / maxTokens` in percent, clamped to 0 to 100. */
  usagePercent: number;
  /** Tokens of the exact next request, without the reserve for the answer. */
  tokenCount: number;
  /** Messages in the next request. */
  transcriptLength: number;
  /** The model's window in tokens. */
  maxTokens: number;
  /**
   * The window learned from the model server, if `maxTokens` is this value: it is smaller than the
   * configured or listed window. `set_model` forgets it, even with the same model.
   */
  learnedWindowTokens?: number;
  /** The strategy: its short name on v2, its class-style name on v1. */
  strategy: string;
  /** A sentence for the user, once 90 % of the window is used. */
  warning?: string;
  /** `tokenCount / maxTokens`, not clamped. */
  usageRatio: number;
  /** The source of `tokenCount`. */
  source: CountSource;
  /** The part of `tokenCount` that the provider reported. */
  usageTokens: number;
  /** The part of `tokenCount` that is estimated for what came after the report. */
  trailingTokens: number;
  /** The entry whose report was used. */
  lastUsageEntryId?: EntryId;
  /** The possible error of `tokenCount`, in tokens in either direction. */
  errorBoundTokens: number;
  /** Tokens left free for an answer. */
  reservedTokens: number;
  /**
   * The strategy compacts automatically before it sends a request with more tokens than this; absent if it
   * never does.
   */
  compactAtTokens?: number;
  /**
   * The rule that decides `compactAtTokens`; absent if that is absent, or if the strategy has its own rule.
   * Not in v1.
   */
  compactAtRule?: CompactAtRule;
  /** Above this count a compaction is prepared in the background; absent if none is. */
  prepareAtTokens?: number;
  /** The tokens of the last request that were read from the provider's cache. */
  cachedTokens: number;
  /** The number of times that the loop was seeded. */
  generation: number;
  /** The number of compactions of this session. */
  compactions: number;
  /** The session. */
  sessionId: SessionId;
  /** The session's leaf, from which it continues; `null` before the first entry. */
  leafId: EntryId | null;
  /** The open circuit breaker of automatic compaction, if it is open. */
  breaker?: Breaker;
  /** Tokens by kind; they add up to `tokenCount`. */
  breakdown: Breakdown;
}

/** Payload of `approval_request`. */
export interface ApprovalRequest {
  /** The tool's name and its arguments. */
  command: Array<string>;
  /** The approval. */
  approvalId: string;
}

/** Payload of `context_compacted`. */
export interface ContextCompacted {
  /** Tokens of the next request before. */
  oldTokenCount: number;
  /** Tokens of the next request after. */
  newTokenCount: number;
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

/** Payload of `agent_finished`: exactly this field, because the original client prints any other. */
export interface AgentFinished {
  /** The turn. */
  responseId: string;
}

/** Payload of `error`. */
export interface Error {
  /** The error, for people. */
  message: string;
  /** The code, and whether a retry may help. */
  details: ErrorDetails;
}
