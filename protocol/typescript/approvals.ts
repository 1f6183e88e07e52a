// Written from the Rust types by `UPDATE=1 cargo test -p reseed-protocol`. Do not edit.

import type { ApprovalId, CallId, Timestamp, TurnId } from "./basics.js";
import type { ToolPlace } from "./events.js";

/**
 * Rules for a session's tools. The first rule that fits a call decides; without one, a tool that the server runs is
 * `auto` if it is read-only and `ask` otherwise, and a tool of the client's is `auto`.
 */
export interface ApprovalPolicy {
  /** The rules: at most 64. */
  rules: Array<ApprovalRule>;
}

/** A rule of an approval policy. */
export interface ApprovalRule {
  /** The tools: a name, in which `*` stands for any characters. */
  tool: string;
  /**
   * Patterns of arguments: from a JSON Pointer to a regular expression that must match the whole value. A value that
   * is not a text is compared as JSON. All of them must fit; an argument that is missing does not.
   */
  arguments?: Record<string, string>;
  /** The decision. */
  policy: ApprovalDecision;
}

/** Whether a tool's calls run without asking, after a person allowed them, or never. */
export type ApprovalDecision = "auto" | "ask" | "deny";

/** Payload of `approval_request`: a call that a person must allow. */
export interface Approval {
  /** The approval. */
  approvalId: ApprovalId;
  /** The call. */
  toolCallId: CallId;
  /** Its turn. */
  turnId: TurnId;
  /** The tool. */
  name: string;
  /** The arguments that it would get, JSON text. */
  arguments: string;
  /** SHA-256 of who runs the call, the tool's name and these arguments, in hexadecimal. */
  argumentsHash: string;
  /** The arguments for people: invisible and direction-changing characters are written as `⟨U+202E⟩`. */
  display: string;
  /** The arguments as the model wrote them, if a hook has changed them. */
  proposedArguments?: string;
  /** Who would run it. */
  place?: ToolPlace;
  /** Why a person is asked. */
  reason: string;
  /** The possible answers. */
  options: Array<ApprovalOption>;
  /** The loop's generation. */
  generation: number;
  /** The time at which no answer counts as a refusal. */
  expiresAt: Timestamp;
}

/** An answer to an approval. */
export type ApprovalOption = "allow_once" | "allow_always" | "reject_once" | "reject_always";

/** A lasting answer: it decides every later call of this tool with exactly these arguments in this session. */
export interface StandingApproval {
  /** The approval that was answered. */
  approvalId: ApprovalId;
  /** The tool. */
  name: string;
  /** The hash of the call, as in the approval. */
  argumentsHash: string;
  /** The arguments for people, as in the approval; a long text is cut. */
  display: string;
  /** `allow_always` or `reject_always`. */
  option: ApprovalOption;
  /** The time of the answer. */
  since: Timestamp;
  /** Who answered. */
  by?: string;
}
