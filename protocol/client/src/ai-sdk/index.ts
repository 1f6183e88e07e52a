/**
 * Types for `useChat` of the AI SDK 7 on a reseed server. There is no code here: the client is `WebSocketChatTransport`
 * of the package `ai`.
 */

import type { StrategySettings } from "../wire.js";

/** The data parts of a message: `UIMessage<ReseedMetadata, ReseedDataParts>`. */
export type ReseedDataParts = {
  /** `data-reseed-context`: the size of the context. Transient: it reaches only `onData`. */
  "reseed-context": ReseedContext;
  /** `data-reseed-compaction`: the last compaction in this message. */
  "reseed-compaction": ReseedCompaction;
};

/** How full the model's window is. */
export interface ReseedContext {
  /** Tokens of the next request. */
  tokenCount: number;
  /** The window in tokens. */
  maxTokens: number;
  /** `tokenCount / maxTokens`, not clamped. */
  usageRatio: number;
  /** Tokens of the last request that came from the provider's cache. */
  cachedTokens: number;
  /** A request with more tokens than this is compacted first; absent if none is. */
  compactAtTokens?: number;
  /** The number of compactions of this chat. */
  compactions: number;
  /** A sentence for the user, once the window is nearly full. */
  warning?: string;
}

/** A compaction: the model sees a summary instead of the older messages. Nothing is deleted. */
export type ReseedCompaction =
  | { state: "running"; done?: number; total?: number }
  | { state: "done"; entryId: string; tokensBefore: number; tokensAfter?: number }
  | { state: "failed"; errorText: string };

/** `metadata` of an assistant's message. */
export interface ReseedMetadata {
  /** The session, for other clients of the same server. */
  sessionId: string;
  /** The model that answers. */
  model: string;
  /** The usage of the turn; absent while it waits for an approval. */
  usage?: ReseedUsage;
}

/** Tokens of a turn. */
export interface ReseedUsage {
  /** Tokens sent, including cached ones. */
  inputTokens: number;
  /** Those that came from the provider's cache. */
  cachedInputTokens: number;
  /** Tokens of the answers, including reasoning. */
  outputTokens: number;
  /** Those that were reasoning; absent if the provider does not report them. */
  reasoningTokens?: number;
  /** All tokens sent and answered. */
  totalTokens: number;
  /** The cost in billionths of a US dollar; absent if the price is unknown. */
  costNanoUsd?: number;
}

/** What `body` of `WebSocketChatTransport` may have. Other fields are ignored. */
export interface ReseedBody {
  /** The tools that the page runs. */
  tools?: { name: string; description?: string; parameters?: object }[];
  /** What `stop()` does to the turn: it goes on without this page (the default), or is cancelled. */
  onAbort?: "detach" | "cancel";
  /** The model; absent for the chat's. */
  model?: string;
  /** The reasoning effort, in the provider's terms. */
  reasoningEffort?: string;
  /** The system prompt; absent for the chat's. */
  instructions?: string;
  /** 0 to 2; absent for the chat's. */
  temperature?: number;
  /** 0 to 1; absent for the chat's. */
  topP?: number;
  /** The maximum number of tokens of an answer; absent for the chat's. */
  maxOutputTokens?: number;
  /** The context strategy, such as `threshold` or `manual`; absent for the chat's. */
  strategy?: string;
  /** Its settings; absent ones are the deployment's. */
  strategySettings?: StrategySettings;
}
