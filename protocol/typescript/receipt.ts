// Written from the Rust types by `UPDATE=1 cargo test -p reseed-protocol`. Do not edit.

import type { ErrorCode } from "./errors.js";

/** Stands on the answer that the request got. */
export interface Receipt {
  /** Which request of its turn, from 1. */
  request: number;
  /** Its tokens, as counted before it was sent. */
  tokens: number;
  /** Of these, the longest beginning that it shares with the session's request before it, the last that was answered. */
  prefixTokens: number;
  /** Where the two part, where the earlier one is not the beginning of this one. */
  broke?: PrefixBreak;
  /** The hooks that were asked for this request, in order. */
  hooks?: Array<HookRun>;
  /** What a stored patch asked for and could not be had: the definition of a tool that has left, for instance. */
  notes?: Array<string>;
  /** Fingerprints of what was sent, by which the next request is compared after a restart. */
  sent?: Array<SentPart>;
}

/** Where a request parts from the one before it. */
export interface PrefixBreak {
  /**
   * The first part that differs: `model`, `tools`, `system:NAME`, or `message:ID` with the entry whose message stands
   * there now; `message` where it is none's.
   */
  part: string;
  /** Why. */
  reason: BreakReason;
  /** More about it: the patch's own reason, the hook's or the model's name. */
  detail?: string;
  /** Tokens of the request before that this one does not begin with. */
  lostTokens: number;
}

/** Why a request does not begin as the one before it. */
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

/** A hook that was asked for a request. */
export interface HookRun {
  /** The hook. */
  hook: string;
  /** What it was asked: `context:before_request`, `message` and the like. */
  event: string;
  /** What came of it. */
  outcome: HookOutcome;
  /** Milliseconds it took. */
  durationMs: number;
  /** An error code, where it failed. */
  code?: ErrorCode;
}

/** What came of asking a hook. */
export type HookOutcome = "unchanged" | "changed" | "skipped" | "failed";

/** A part of a request with its fingerprint. */
export interface SentPart {
  /** `tools`, `system:NAME`, `messages`, or `uncached` for the messages that were sent once. */
  part: string;
  /** Its fingerprint. */
  hash: string;
}
