// Written from the Rust types by `UPDATE=1 cargo test -p reseed-protocol`. Do not edit.

import type { EntryId, LeafId, SessionId, Timestamp, TurnId } from "./basics.js";
import type { Message, Part, Role } from "./content.js";
import type { Receipt } from "./receipt.js";

/** Payload of `get_context`. */
export interface GetContext {
  /** `envelope` (the default) or `markdown`. */
  format?: ContextFormat;
  /** Includes what hooks last added for a single request; calls no hook. */
  ephemeral?: boolean;
}

/** The format of `get_context`. */
export type ContextFormat = "envelope" | "markdown";

/** The form of answers. Absent fields are left to the provider. */
export interface AnswerOptions {
  /** Which tools the model may or must call. A choice that forces a call is for the first request of a turn. */
  toolChoice?: ToolChoice;
  /** False if an answer may have at most one call. */
  parallelToolCalls?: boolean;
  /** The format of the text. */
  format?: AnswerFormat;
  /**
   * Asks for the probabilities of the answer's tokens, each with this many alternatives, 0 to 20. They come in
   * `details.logprobs` of the answer, as the model server sends them; only those of Chat Completions do.
   */
  topLogprobs?: number;
}

/** Which tools the model may or must call. */
export type ToolChoice =
  | { type: "auto" }
  | { type: "none" }
  | { type: "required" }
  | {
      type: "tool";
      /** The tool. */
      name: string;
    };

/** The format of an answer's text. */
export type AnswerFormat =
  | { type: "json_object" }
  | {
      type: "json_schema";
      /** The schema's name: 1 to 64 of `A-Za-z0-9_-`. */
      name: string;
      /** Its purpose, for the model. */
      description?: string;
      /** The JSON Schema. */
      schema: Record<string, unknown>;
      /** True if the provider must hold the answer to the schema. */
      strict?: boolean;
    };

/** An op in a hook's answer. */
export type SubmittedOp = PatchOp | ProposedOp;

/**
 * A change to the context envelope. All but `messages_uncached_append` affect what a provider may have cached, and
 * give a reason: `invalidateCacheReason` must not be blank.
 */
export type PatchOp =
  | {
      op: "system_part_set";
      /** The part. */
      partName: string;
      /** Its text. */
      text: string;
      /** The reason for invalidating the provider's cache. */
      invalidateCacheReason: string;
    }
  | {
      op: "system_part_remove";
      /** The part. */
      partName: string;
      /** The reason for invalidating the provider's cache. */
      invalidateCacheReason: string;
    }
  | {
      op: "system_parts_replace";
      /** The parts, in order. */
      parts: Array<SystemPart>;
      /** The reason for invalidating the provider's cache. */
      invalidateCacheReason: string;
    }
  | {
      op: "tools_replace";
      /** The definitions, in order. */
      tools: Array<ToolDefinition>;
      /** The reason for invalidating the provider's cache. */
      invalidateCacheReason: string;
    }
  | {
      op: "tools_remove";
      /** The tools' names. */
      toolNames: Array<string>;
      /** The reason for invalidating the provider's cache. */
      invalidateCacheReason: string;
    }
  | {
      op: "messages_cached_replace";
      /** The messages, in the order in which the model sees them: entries, and complete messages between them. */
      messages: Array<PatchMessage>;
      /** The reason for invalidating the provider's cache. */
      invalidateCacheReason: string;
    }
  | {
      op: "messages_cached_edit";
      /** The changes. */
      edits: Array<MessageEdit>;
      /** The reason for invalidating the provider's cache. */
      invalidateCacheReason: string;
    }
  | {
      op: "messages_uncached_append";
      /** The messages. */
      messages: Array<Message>;
    }
  | {
      op: "options_set";
      /** 0 to 2. */
      temperature?: number;
      /** The maximum number of tokens in the answer. */
      maxOutputTokens?: number;
      /** The reasoning effort, in the provider's own terms. */
      reasoningEffort?: string;
      /** The reason for invalidating the provider's cache. */
      invalidateCacheReason: string;
    }
  | {
      op: "compaction_apply";
      /** The summary. */
      summary: string;
      /** The first kept entry; absent if none is. */
      firstKeptEntryId?: EntryId;
      /** Older kept entries, between the summary and the first kept one. */
      keptEntryIds?: Array<EntryId>;
      /** The time of its creation. */
      timestamp: Timestamp;
      /** Tokens of the request before it. */
      tokensBefore: number;
      /** The reason for invalidating the provider's cache. */
      invalidateCacheReason: string;
    };

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
  /** JSON Schema of its arguments, as an object. */
  parameters: Record<string, unknown>;
}

/**
 * A message of a replacement: an entry as the model sees it, another message in that entry's place, or a message
 * without an entry.
 */
export interface PatchMessage {
  /** The entry it comes from. */
  entryId?: EntryId;
  /** Its content; absent to use the entry's. */
  message?: Message;
}

/** A change of one cached message. */
export interface MessageEdit {
  /** The entry of the message. */
  entryId: EntryId;
  /** The new message; absent to remove it. */
  message?: Message;
}

/** An op in the proposal's form: it may have a scope, and its messages may be bare, with a plain string as content. */
export type ProposedOp =
  | {
      op: "system_part_set";
      /** The scope of the op. */
      scope?: Cached;
      /** The part. */
      partName: string;
      /** Its text. */
      text: string;
      /** The reason for invalidating the provider's cache. */
      invalidateCacheReason: string;
    }
  | {
      op: "system_part_remove";
      /** The scope of the op. */
      scope?: Cached;
      /** The part. */
      partName: string;
      /** The reason for invalidating the provider's cache. */
      invalidateCacheReason: string;
    }
  | {
      op: "system_parts_replace";
      /** The scope of the op. */
      scope?: Cached;
      /** The parts, in order. */
      parts: Array<SystemPart>;
      /** The reason for invalidating the provider's cache. */
      invalidateCacheReason: string;
    }
  | {
      op: "tools_replace";
      /** The scope of the op. */
      scope?: Cached;
      /** The definitions, in order. */
      tools: Array<ToolDefinition>;
      /** The reason for invalidating the provider's cache. */
      invalidateCacheReason: string;
    }
  | {
      op: "tools_remove";
      /** The scope of the op. */
      scope?: Cached;
      /** The tools' names. */
      toolNames: Array<string>;
      /** The reason for invalidating the provider's cache. */
      invalidateCacheReason: string;
    }
  | {
      op: "messages_cached_replace";
      /** The scope of the op. */
      scope?: Cached;
      /** The messages, in order. */
      messages: Array<ProposedItem>;
      /** The reason for invalidating the provider's cache. */
      invalidateCacheReason: string;
    }
  | {
      op: "messages_cached_edit";
      /** The scope of the op. */
      scope?: Cached;
      /** The changes. */
      edits: Array<ProposedEdit>;
      /** The reason for invalidating the provider's cache. */
      invalidateCacheReason: string;
    }
  | {
      op: "messages_uncached_append";
      /** The scope of the op. */
      scope?: Uncached;
      /** The messages. */
      messages: Array<ProposedMessage>;
    }
  | {
      op: "options_set";
      /** The scope of the op. */
      scope?: Cached;
      /** 0 to 2. */
      temperature?: number;
      /** The same as `maxOutputTokens`. */
      maxTokens?: number;
      /** The same as `reasoningEffort`. */
      reasoning?: string;
      /** The reason for invalidating the provider's cache. */
      invalidateCacheReason: string;
    }
  | {
      op: "compaction_apply";
      /** The scope of the op. */
      scope?: Cached;
      /** The summary. */
      summary: string;
      /** The first kept entry; absent if none is. */
      firstKeptEntryId?: EntryId;
      /** Older kept entries, between the summary and the first kept one. */
      keptEntryIds?: Array<EntryId>;
      /** The time of its creation. */
      timestamp: Timestamp;
      /** Tokens of the request before it. */
      tokensBefore: number;
      /** The reason for invalidating the provider's cache. */
      invalidateCacheReason: string;
    };

/** The scope of an op on cacheable content. */
export type Cached = "cached";

/** A message of a replacement. */
export type ProposedItem = ProposedNamed | ProposedMessage;

/** A message of a replacement, named. */
export interface ProposedNamed {
  /** The entry it comes from. */
  entryId?: EntryId;
  /** Its content; absent to use the entry's. */
  message?: ProposedMessage;
}

/** A message of a patch; its other fields are ignored. */
export interface ProposedMessage {
  /** Its author. */
  role: Role;
  /** Its content: a text, or parts. */
  content: ProposedContent;
}

/** The content of a message in a patch. */
export type ProposedContent = string | Array<Part>;

/** A change of one cached message. */
export interface ProposedEdit {
  /** The entry of the message. */
  entryId: EntryId;
  /** The new message; absent to remove it. */
  message?: ProposedMessage;
}

/** The scope of an op on messages of one request. */
export type Uncached = "uncached";

/** The presentation of a transform to users. Has no meaning for the server. */
export interface TransformDisplay {
  /** A heading. */
  title: string;
  /** A sentence. */
  summary?: string;
  /** Longer text. */
  markdown?: string;
  /** The renderer that a client uses. */
  rendererId?: string;
  /** The renderer's properties. */
  rendererProps?: unknown;
  /** True if it is shown in the chat. */
  showInChat?: boolean;
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
 * The circuit breaker of automatic compaction: why it is open, and until when. A client may compact meanwhile,
 * which closes the breaker if it saves enough.
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

/**
 * A patch that applies to every later request on this branch, at its position. Data of another version, or with an
 * unknown field, is not parsed as one: half of a patch is a different patch.
 */
export interface ContextTransform {
  /** The version of the patch's form: 1. */
  schemaVersion: number;
  /** Its author. */
  transformerName: string;
  /** The changes, in order. */
  patch: Array<PatchOp>;
  /** Its presentation to users. */
  display?: TransformDisplay;
}

/** Changes to one request beyond the session's history. Logged, never replayed. */
export interface EphemeralChange {
  /** The hook that made them. */
  transformerName: string;
  /** The changes, in order. */
  patch: Array<PatchOp>;
}

/** Payload of `context`. */
export interface Context {
  /** The next request's envelope. */
  envelope?: ContextEnvelope;
  /** The same as readable text. */
  markdown?: string;
  /** Its tokens. */
  tokens: number;
  /** The receipt that it would get, compared with the session's previous request. */
  receipt?: Receipt;
  /** The receipt of the newest answer, which may have the provider's verdict. */
  answered?: Receipt;
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
  /** 0 to 1. */
  topP?: number;
  /** The maximum number of tokens in the answer. */
  maxOutputTokens?: number;
  /** The reasoning effort, in the provider's own terms, such as `low` or `high`. */
  reasoningEffort?: string;
  /** The form of the answer. */
  answer?: AnswerOptions;
}

/** The purpose and token counts of a request. Not sent. */
export interface EnvelopeMeta {
  /** The requested model. */
  model: string;
  /** Its window in tokens. */
  windowTokens: number;
  /** The turn; absent outside a turn. */
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
  /** The fixed overhead of a request. */
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
