// Written from the Rust types by `UPDATE=1 cargo test -p reseed-protocol`. Do not edit.

import type { CallId } from "./basics.js";
import type { Receipt } from "./receipt.js";

/** The user's input: a text, or OpenAI Responses input items. */
export type Input = string | Array<InputItem>;

/** One input item of OpenAI's Responses API. */
export interface InputItem {
  /** `message`; absent means the same. */
  type?: string;
  /** The item's id elsewhere; ignored. */
  id?: string;
  /** The item's state elsewhere; ignored. */
  status?: string;
  /** `user`. */
  role: string;
  /** A text, or parts. */
  content: InputContent;
}

/** The content of an input item. */
export type InputContent = string | Array<InputPart>;

/**
 * A part of an input item: in the form that entries have, `text` and `image`, or in that of OpenAI's Responses API,
 * `input_text` and `input_image`.
 */
export type InputPart =
  | {
      type: "text";
      /** The text. */
      text: string;
    }
  | {
      type: "image";
      /** `https:` or `data:` URL. */
      url: string;
      /** `low`, `high` or `auto`. */
      detail?: string;
    }
  | {
      type: "input_text";
      /** The text. */
      text: string;
    }
  | {
      type: "input_image";
      /** `https:` or `data:` URL. */
      image_url: string;
      /** `low`, `high` or `auto`. */
      detail?: string;
    };

/** A message. */
export interface Message {
  /** Its author. */
  role: Role;
  /** Its content, in order. */
  content: Array<Part>;
  /** The model that answered; on assistant messages. */
  model?: string;
  /** The usage of its request; on assistant messages. */
  usage?: Usage;
  /**
   * Identifies the system prompt, the tools and the messages sent with the request, so that its `usage` is known
   * to be stale when they change; on assistant messages.
   */
  envelopeKey?: string;
  /** Cache diagnostics of its request; on assistant messages. */
  receipt?: Receipt;
  /** The reason the answer ended; on assistant messages. */
  stopReason?: StopReason;
  /**
   * True if the answer was cancelled, or cut off because the provider failed. The content is what had been
   * shown. The stop reason is `cancelled` if it was cancelled, and otherwise absent.
   */
  incomplete?: boolean;
  /** The cut in the result; on tool messages whose result was too large. */
  cut?: Cut;
  /** Opaque data that the provider attached to the answer; on assistant messages. */
  payload?: Payload;
  /** Data for programs: what came with an input, or `logprobs` of an answer. Never sent to the model. */
  details?: unknown;
}

/** The author of a message. */
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
      /** The level of detail: `low`, `high` or `auto`. */
      detail?: string;
    }
  | {
      type: "reasoning";
      /** The readable part; empty if the provider hides it. */
      text: string;
      /** The provider's own item, sent back to it unchanged; opaque to everyone else. */
      payload?: unknown;
    }
  | {
      type: "tool_call";
      /** Identifies this call; its result carries the same id. */
      toolCallId: CallId;
      /** The tool's name. */
      name: string;
      /**
       * The arguments: the JSON object that the model meant (`{}` if it wrote none), or the model's own text if it
       * is not a JSON object. An envelope has the arguments as they are sent: such text becomes `{"malformed":
       * TEXT}`.
       */
      arguments: string;
    }
  | {
      type: "tool_result";
      /** The call that it answers. */
      toolCallId: CallId;
      /** The output, as text for the model. */
      output: string;
      /** True if the tool failed. */
      isError?: boolean;
    };

/** Tokens of one request. */
export interface Usage {
  /** Tokens sent, including cached ones. */
  inputTokens: number;
  /** The input tokens that were read from the provider's cache. */
  cachedTokens: number;
  /** The input tokens that were written to the provider's cache; absent if the provider does not report them. */
  cacheWriteTokens?: number;
  /** Those of `cacheWriteTokens` that the provider keeps for an hour; absent if it does not report them apart. */
  cacheWriteHourTokens?: number;
  /** Tokens of the answer, including reasoning. */
  outputTokens: number;
  /** The output tokens that were reasoning; absent if the provider does not report them. */
  reasoningTokens?: number;
  /**
   * The tokens of the longest prefix shared with the session's previous request, as counted before sending: what
   * the provider could have cached. Absent for summaries, and in older logs.
   */
  prefixTokens?: number;
  /**
   * The tokens of further passes that the provider made for this answer, such as a continuation after a pause.
   * They are billed, but are in none of the counts above.
   */
  further?: FurtherUsage;
  /** The cost in billionths of a US dollar; absent if the model's price is unknown. */
  costNanoUsd?: number;
  /** Reported by the provider, or estimated. */
  source: UsageSource;
}

/** Tokens of the further passes of one request. */
export interface FurtherUsage {
  /** Tokens sent, including cached ones. */
  inputTokens: number;
  /** The input tokens that were read from the provider's cache. */
  cachedTokens: number;
  /** The input tokens that were written to the provider's cache. */
  cacheWriteTokens: number;
  /** Those of `cacheWriteTokens` that the provider keeps for an hour. */
  cacheWriteHourTokens: number;
  /** Tokens of the answers. */
  outputTokens: number;
}

/** The source of a count. */
export type UsageSource = "reported" | "estimated";

/** The reason an answer ended. */
export type StopReason = "stop" | "length" | "tool_calls" | "content_filter" | "cancelled";

/**
 * The cut in a tool result that was too large. The output shows the beginning and the end, with a note between
 * them. Lengths and positions are in UTF-16 code units.
 */
export interface Cut {
  /** The length of the whole result. */
  characters: number;
  /** The length of the parts that the output shows, without the note. */
  shown: number;
  /** The position from which characters were left out: the length of the beginning that is shown. */
  from: number;
  /** The whole result; only in the reply to `get_entries` with `entryId`. */
  whole?: string;
}

/**
 * Opaque data that a provider attached to an answer. It is sent back with that answer, byte for byte, and only to
 * the same server and model.
 */
export interface Payload {
  /** Identifies the server, without naming its address. */
  server: string;
  /** The field that held the reasoning. The text of the message's reasoning parts is sent back in it. */
  reasoning?: string;
  /** The other fields of the answer, as the JSON text of an object. */
  fields?: string;
  /** The data attached to its tool calls. */
  calls?: Array<CallPayload>;
  /** The provider's own form of the summary that the message shows as text. */
  compaction?: NativeCompaction;
}

/** Opaque data that a provider attached to a tool call. */
export interface CallPayload {
  /** The call. */
  toolCallId: CallId;
  /** The provider's own id of the call; empty if it gave none. */
  id?: string;
  /** The other fields of the call, as the JSON text of an object. */
  fields?: string;
}

/**
 * A provider's own form of a summary. It covers everything before the messages that are kept, like the
 * text beside it. It is sent only to the server, the API and the model that made it; all others read the text.
 */
export interface NativeCompaction {
  /** Identifies the server, without naming its address. */
  server: string;
  /** The API: `responses` or `messages`. */
  api: string;
  /** The model. */
  model: string;
  /** The opaque items, as the JSON text of an array. They are sent back unchanged. */
  items: string;
  /** The tokens that the provider reported for it; absent if it reported none. */
  tokens?: number;
}
