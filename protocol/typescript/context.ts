// Written from the Rust types by `UPDATE=1 cargo test -p reseed-protocol`. Do not edit.

import type { EntryId, SessionId, Timestamp, TurnId } from "./basics.js";
import type { Message } from "./content.js";

/** A named part of the system prompt. */
export interface SystemPart {
  /** What the part is for, `base` for instance. */
  name: string;
  /** Its text. */
  text: string;
}

/** A tool as the model is told of it. */
export interface ToolDefinition {
  /** Its name: 1 to 64 of `A-Za-z0-9_-`. */
  name: string;
  /** What it does, for the model. */
  description: string;
  /** JSON Schema of its arguments, an object. */
  parameters: Record<string, unknown>;
}

/** How full the window is. The first five fields are v1's; every number is finite. */
export interface ContextInfo {
  /** Tokens of the exact next request, without the output reserve. */
  tokenCount: number;
  /** `tokenCount / maxTokens` in percent, held within 0 to 100. */
  usagePercent: number;
  /** Messages in the next request. */
  transcriptLength: number;
  /** The model's window in tokens. */
  maxTokens: number;
  /** The strategy: its short name on v2, its class-style name on v1. */
  strategy: string;
  /** A sentence for the user from 90 % on. */
  warning?: string;
  /** `tokenCount / maxTokens`, not held within anything. */
  usageRatio: number;
  /** Where `tokenCount` comes from. */
  source: CountSource;
  /** Of `tokenCount`, what the provider reported. */
  usageTokens: number;
  /** Of `tokenCount`, what we reckoned for what came after the report. */
  trailingTokens: number;
  /** The entry whose report was used. */
  lastUsageEntryId?: EntryId;
  /** By how much `tokenCount` may be wrong, in tokens either way. */
  errorBoundTokens: number;
  /** Tokens left free for an answer. */
  reservedTokens: number;
  /** The strategy compacts by itself before it sends a request of more tokens than this; absent where it never does. */
  compactAtTokens?: number;
  /**
   * Which rule decides `compactAtTokens`; absent where that is, and where a strategy has a rule of its own. Not on
   * v1.
   */
  compactAtRule?: CompactAtRule;
  /** Above this count a compaction is prepared while turns go on; absent where none is. */
  prepareAtTokens?: number;
  /** Of the last request, tokens that the provider took from its cache. */
  cachedTokens: number;
  /** How often the loop was seeded. */
  generation: number;
  /** How often this session was compacted. */
  compactions: number;
  /** The session. */
  sessionId: SessionId;
  /** The entry from which the session goes on; `null` before the first. */
  leafId: EntryId | null;
  /** Why automatic compaction rests, where it does. */
  breaker?: Breaker;
  /** Tokens by kind; they add up to `tokenCount`. */
  breakdown: Breakdown;
}

/** Where the token count of a request comes from. */
export type CountSource = "reported" | "estimated" | "mixed";

/** Which rule decides from which count on a compaction is due: the one that gives the smaller count. */
export type CompactAtRule = "threshold" | "reserve_tokens" | "max_output_tokens" | "answer_room";

/** Why automatic compaction rests, and until when. `manual_compact` works meanwhile, and ends the rest where it gains. */
export interface Breaker {
  /** Why. */
  reason: BreakerReason;
  /** How often in a row it failed or gained too little. */
  failures: number;
  /** It is tried again from this time on. */
  retryAt?: Timestamp;
  /** It is tried again once the next request has more tokens than this. */
  retryAboveTokens?: number;
  /** A sentence for the user. */
  message: string;
}

/** Why automatic compaction rests. */
export type BreakerReason = "failures" | "no_gain" | "undone";

/** Tokens by kind; the kinds add up to the request's `tokenCount`. */
export interface Breakdown {
  /** The system prompt. */
  system: number;
  /** The tool definitions. */
  tools: number;
  /** The summary that stands for what was compacted. */
  summary: number;
  /** What the user said, pending input included. */
  user: number;
  /** What the model said, its tool calls included. */
  assistant: number;
  /** What the model thought, where it is sent back. */
  reasoning: number;
  /** What tools answered. */
  toolResults: number;
  /** Pictures. */
  images: number;
  /** Messages outside the cached prefix. */
  uncached: number;
}

/** Everything that one request sends. */
export interface ContextEnvelope {
  /** The system prompt. */
  system: SystemPrompt;
  /** The tools on offer, in the order in which they are sent. */
  tools: Array<ToolDefinition>;
  /** The messages; the uncached ones always last. */
  messages: EnvelopeMessages;
  /** Sampling and limits. */
  options: RequestOptions;
  /** What it is for, and what it costs; not sent. */
  meta: EnvelopeMeta;
}

/** The system prompt, in named parts. */
export interface SystemPrompt {
  /** The parts, in order. */
  parts: Array<SystemPart>;
  /** The parts' texts joined: what is sent. Empty: no system prompt is sent. */
  compiled: string;
}

/** The messages of a request. */
export interface EnvelopeMessages {
  /** The stable prefix, which a provider can cache. */
  cached: Array<ContextMessage>;
  /** What belongs to this request only; always sent last. */
  uncached: Array<ContextMessage>;
}

/** A message of a request, with the entry it comes from. */
export interface ContextMessage {
  /** The entry it stands for; absent for messages that no entry holds. */
  entryId?: EntryId;
  /** The message. */
  message: Message;
}

/** Sampling and limits of a request. What is absent is left to the provider. */
export interface RequestOptions {
  /** 0 to 2. */
  temperature?: number;
  /** Most tokens the answer may have. */
  maxOutputTokens?: number;
  /** How long the model should think: the provider's own word, `low` or `high` for instance. */
  reasoningEffort?: string;
}

/** What a request is for, and what it costs. Not sent. */
export interface EnvelopeMeta {
  /** The model that is asked. */
  model: string;
  /** Its window in tokens. */
  windowTokens: number;
  /** The turn; absent outside of one. */
  turnId?: TurnId;
  /** Which request of its turn, from 1. */
  request: number;
  /** Tokens of all of it. */
  tokens: number;
  /** Tokens of each part, which add up to `tokens`; absent where nobody looks at them. */
  parts?: EnvelopeTokens;
}

/** Tokens of each part of an envelope, in its order; they add up to its tokens. */
export interface EnvelopeTokens {
  /** What any request costs. */
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
