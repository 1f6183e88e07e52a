// Written from the Rust types by `UPDATE=1 cargo test -p reseed-protocol`. Do not edit.

import type { CallId } from "./basics.js";
import type { Receipt } from "./receipt.js";

/** What one side said. */
export interface Message {
  /** Who said it. */
  role: Role;
  /** What was said, in order. */
  content: Array<Part>;
  /** The model that answered; on assistant messages. */
  model?: string;
  /** What the request cost; on assistant messages. */
  usage?: Usage;
  /**
   * Names the system prompt, the tools and the messages that were sent with the request, so that its `usage` is
   * known to be stale when they change; on assistant messages.
   */
  envelopeKey?: string;
  /** What the request was made of; on assistant messages. */
  receipt?: Receipt;
  /** Why the answer ended; on assistant messages. */
  stopReason?: StopReason;
  /** The answer was cut off by a cancel: this is what had been shown. */
  incomplete?: boolean;
}

/** Who speaks. */
export type Role = "user" | "assistant" | "tool";

/** A piece of a message. */
export type Part =
  | {
      type: "text";
      /** The text. */
      text: string;
    }
  | {
      type: "image";
      /** `https:` or `data:` URL. */
      url: string;
      /** How closely the model should look: `low`, `high` or `auto`. */
      detail?: string;
    }
  | {
      type: "reasoning";
      /** The readable part, empty where the provider hides it. */
      text: string;
      /** The provider's own item, sent back to it unchanged; opaque to everyone else. */
      payload?: unknown;
    }
  | {
      type: "tool_call";
      /** Names this call; its result carries the same id. */
      callId: CallId;
      /** The tool's name. */
      name: string;
      /** The arguments as the model wrote them: JSON text, perhaps malformed. */
      arguments: string;
    }
  | {
      type: "tool_result";
      /** The call that this answers. */
      callId: CallId;
      /** The answer, as text for the model. */
      output: string;
      /** Whether the tool failed. */
      isError?: boolean;
    };

/** Tokens that one request cost. */
export interface Usage {
  /** Tokens sent, the cached ones included. */
  inputTokens: number;
  /** Of these, tokens the provider took from its cache. */
  cachedTokens: number;
  /** Of these, tokens the provider wrote to its cache, where it says so. */
  cacheWriteTokens?: number;
  /** Tokens answered, the reasoning included. */
  outputTokens: number;
  /** Of these, reasoning. */
  reasoningTokens?: number;
  /**
   * Of the tokens sent, as counted before, the longest beginning that the request shares with the session's request
   * before it: what the provider could have had in its cache. Absent for summaries, and in older logs.
   */
  prefixTokens?: number;
  /** What it cost, in billionths of a US dollar; absent where the model's price is not known. */
  costNanoUsd?: number;
  /** Reported by the provider or reckoned by us. */
  source: UsageSource;
}

/** Where a count comes from. */
export type UsageSource = "reported" | "estimated";

/** Why an answer ended. */
export type StopReason = "stop" | "length" | "tool_calls" | "content_filter" | "cancelled";
