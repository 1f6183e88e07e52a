// Written from the Rust types by `UPDATE=1 cargo test -p reseed-protocol`. Do not edit.

import type { ErrorCode } from "./errors.js";

/** Stored with the answer to the request. */
export interface Receipt {
  /** The number of the request within its turn, from 1. */
  request: number;
  /** Its tokens, as counted before it was sent. */
  tokens: number;
  /** The tokens of the longest prefix shared with the session's previous answered request. */
  prefixTokens: number;
  /** The first difference, if the earlier one is not a prefix of this one. */
  broke?: PrefixBreak;
  /** The hooks called for this request, in order. */
  hooks?: Array<HookRun>;
  /** Names that a stored patch refers to but that are unavailable, such as a tool that was removed. */
  notes?: Array<string>;
  /**
   * The parts that the model server refuses or that its API does not have, by name. They were left out of this
   * request or written differently.
   */
  adapted?: Array<string>;
  /** The provider's own comparison with the previous answered request, if it was asked for one. */
  provider?: ProviderVerdict;
  /** The provider's id of the answer. The next request asks for a comparison with it. */
  response?: ResponseId;
  /** Fingerprints of what was sent. After a restart, the next request is compared with them. */
  sent?: Array<SentPart>;
}

/** The first difference between a request and the previous one. */
export interface PrefixBreak {
  /**
   * The first part that differs: `model`, `tools`, `system:NAME`, or `message:ID` with the entry whose message
   * is now there; `message` if it has no entry.
   */
  part: string;
  /** The reason. */
  reason: BreakReason;
  /** Further detail: the patch's own reason, the hook's or the model's name. */
  detail?: string;
  /** Tokens of the previous request that this one does not start with. */
  lostTokens: number;
}

/** The reason a request does not start with the previous one. */
export type BreakReason =
  | "patch"
  | "compaction"
  | "compaction_undone"
  | "navigation"
  | "model"
  | "tools"
  | "instructions"
  | "uncached"
  | "strategy"
  | "pins"
  | "unknown";

/** A hook called for a request. */
export interface HookRun {
  /** The hook. */
  hook: string;
  /** The point at which it was called: `context:before_request`, `message` and the like. */
  point: string;
  /** The outcome. */
  outcome: HookOutcome;
  /** Its duration in milliseconds. */
  durationMs: number;
  /** An error code, if it failed. */
  code?: ErrorCode;
}

/** The outcome of a hook call. */
export type HookOutcome = "unchanged" | "changed" | "skipped" | "failed";

/**
 * A provider's comparison of a request with the previous answered one. It is about what was sent, and not about
 * whether the cache still had it.
 */
export interface ProviderVerdict {
  /** The outcome. */
  verdict: CacheVerdict;
  /** The provider's own word for the reason, such as `tools_changed`. */
  reason?: string;
  /**
   * The first part that differs for the provider: `model`, `tools`, `system`, `messages`; `input` for the system
   * prompt or the messages; `options` for settings that `broke` does not cover.
   */
  part?: string;
  /** Tokens that the provider could not reuse, as it estimates. */
  lostTokens?: number;
  /** Whether it agrees with this receipt's `prefixTokens` and `broke`; absent if that is unknown. */
  agrees?: boolean;
}

/** The outcome of a provider's comparison. */
export type CacheVerdict = "hit" | "miss" | "unknown";

/** A provider's id of an answer. */
export interface ResponseId {
  /** The id. */
  id: string;
  /** Identifies the server that gave it, without its address. */
  server: string;
}

/** A part of a request with its fingerprint. */
export interface SentPart {
  /** `tools`, `system:NAME`, `messages`, or `uncached` for messages sent once. */
  part: string;
  /** Its fingerprint. */
  hash: string;
}
