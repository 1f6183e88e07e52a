// Written from the Rust types by `UPDATE=1 cargo test -p reseed-protocol`. Do not edit.

import type { EntryId, LeafId, SessionId, Timestamp, TurnId } from "./basics.js";
import type { Message } from "./content.js";

/** A named part of the system prompt. */
export interface SystemPart {
  /** The purpose of the part, such as `base`. */
  name: string;
  /** Its text. */
  text: string;
}

/** A tool definition as sent to the model. */
export interface ToolDefinition {
  /** Its name: 1 to 64 of `A-Za-z0-9_-`. */
  name: string;
  /** A description for the model. */
  description: string;
  /** JSON Schema of its arguments, an object. */
  parameters: Record<string, unknown>;
}

/** The size of the context; every number is finite. */
export interface ContextInfo {
  /** Tokens of the exact next request, without the reserve for the answer. */
  tokenCount: number;
  /** Messages in the next request. */
  transcriptLength: number;
  /** The model's window in tokens. */
  maxTokens: number;
  /**
   * The window that was learnt from the model's server, if `maxTokens` is that one: it is smaller than what
   * is configured or listed. `set_model`, also with the same model, forgets it.
   */
  learnedWindowTokens?: number;
  /** The strategy: its short name on v2, its class-style name on v1. */
  strategy: string;
  /** A sentence for the user, from 90 % on. */
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
  /** The session's leaf, from which it continues. */
  leafId: LeafId;
  /** The open circuit breaker of automatic compaction, if it is open. */
  breaker?: Breaker;
  /** Tokens by kind; they add up to `tokenCount`. */
  breakdown: Breakdown;
}

/** The source of a request's token count. */
export type CountSource = "reported" | "estimated" | "mixed";

/** The rule that decides when a compaction is due: the one with the smallest count. */
export type CompactAtRule = "threshold" | "reserve_tokens" | "max_output_tokens" | "answer_room";

/**
 * The circuit breaker of automatic compaction: why it is open, and until when. A client may compact meanwhile, which
 * closes the breaker if it saves enough.
 */
export interface Breaker {
  /** The reason. */
  reason: BreakerReason;
  /** Consecutive compactions that failed or saved too little. */
  failures: number;
  /** Automatic compaction is tried again from this time on. */
  retryAt?: Timestamp;
  /** Automatic compaction is tried again once the next request has more tokens than this. */
  retryAboveTokens?: number;
  /** A sentence for the user. */
  message: string;
}

/** The reason for an open circuit breaker. */
export type BreakerReason = "failures" | "no_gain" | "undone";

/** Tokens by kind; the kinds add up to the request's `tokenCount`. */
export interface Breakdown {
  /** The system prompt. */
  system: number;
  /** The tool definitions. */
  tools: number;
  /** The summary of what was compacted. */
  summary: number;
  /** The user's messages, including pending input. */
  user: number;
  /** The model's messages, including its tool calls. */
  assistant: number;
  /** The model's reasoning, if it is sent back. */
  reasoning: number;
  /** Tool results. */
  toolResults: number;
  /** Images. */
  images: number;
  /** Messages outside the cached prefix. */
  uncached: number;
}

/** Everything that one request sends. */
export interface ContextEnvelope {
  /** The system prompt. */
  system: SystemPrompt;
  /** The offered tools, in the order in which they are sent. */
  tools: Array<ToolDefinition>;
  /** The messages; the uncached ones are always last. */
  messages: EnvelopeMessages;
  /** Sampling and limits. */
  options: RequestOptions;
  /** The purpose and token counts of the request; not sent. */
  meta: EnvelopeMeta;
}

/** The system prompt, in named parts. */
export interface SystemPrompt {
  /** The parts, in order. */
  parts: Array<SystemPart>;
  /** The parts' texts joined: what is sent. If empty, no system prompt is sent. */
  compiled: string;
}

/** The messages of a request. */
export interface EnvelopeMessages {
  /** The stable prefix, which a provider can cache. */
  cached: Array<ContextMessage>;
  /** Messages of this request only; always sent last. */
  uncached: Array<ContextMessage>;
}

/** A message of a request, with the entry it comes from. */
export interface ContextMessage {
  /** The entry it comes from; absent for messages without an entry. */
  entryId?: EntryId;
  /** The message. */
  message: Message;
}

/** Sampling and limits of a request. Absent values are left to the provider. */
export interface RequestOptions {
  /** 0 to 2. */
  temperature?: number;
  /** The most tokens of the answer. */
  maxOutputTokens?: number;
  /** The reasoning effort, in the provider's own terms, such as `low` or `high`. */
  reasoningEffort?: string;
}

/** The purpose and token counts of a request. Not sent. */
export interface EnvelopeMeta {
  /** The requested model. */
  model: string;
  /** Its window in tokens. */
  windowTokens: number;
  /** The turn; absent outside of one. */
  turnId?: TurnId;
  /** The number of the request within its turn, from 1. */
  request: number;
  /** Tokens of the whole request. */
  tokens: number;
  /** Tokens of each part, which add up to `tokens`; absent if not needed. */
  parts?: EnvelopeTokens;
}

/** Tokens of each part of an envelope, in its order; they add up to its tokens. */
export interface EnvelopeTokens {
  /** Tokens that any request has. */
  frame: number;
  /** Each part of the system prompt. */
  system: Array<number>;
  /** Each tool. */
  tools: Array<number>;
  /** Each cached message. */
  cached: Array<number>;
  /** Each uncached message. */
  uncached: Array<number>;
}
