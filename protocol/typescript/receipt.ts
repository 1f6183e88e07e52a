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

/** A part of a request with its fingerprint. */
export interface SentPart {
  /** `tools`, `system:NAME`, `messages`, or `uncached` for messages sent once. */
  part: string;
  /** Its fingerprint. */
  hash: string;
}
