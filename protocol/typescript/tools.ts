// Written from the Rust types by `UPDATE=1 cargo test -p reseed-protocol`. Do not edit.

import type { ApprovalId, CallId, Timestamp, TurnId } from "./basics.js";

/** A tool that the model may call. */
export interface ToolOffer {
  /** Its name: 1 to 64 of `A-Za-z0-9_-`. */
  name: string;
  /** A description for the model. */
  description: string;
  /** JSON Schema of its arguments, an object. Absent or `null`: it has none. */
  parameters: Record<string, unknown> | null;
  /** The timeout of a call in milliseconds; absent: the server's default. */
  timeoutMs?: number;
  /** True if a call may safely be made twice: a new host is asked to run it even if an earlier one was. */
  idempotent?: boolean;
  /** True if calls of this tool run one after another. */
  sequential?: boolean;
  /** What the tool does to the world. The defaults of the approval policy follow from it. */
  annotations?: ToolAnnotations;
}

/** What a tool does to the world, by its own account. The words are MCP's; what is absent is unknown. */
export interface ToolAnnotations {
  /** True if it changes nothing. */
  readOnly?: boolean;
  /** True if it may destroy what it changes. */
  destructive?: boolean;
  /** True if a second call with the same arguments changes nothing more. */
  idempotent?: boolean;
  /** True if it reaches beyond the server: the network, other systems. */
  openWorld?: boolean;
}

/** Payload of `tool_result`. */
export interface ToolResult {
  /** The call. */
  toolCallId: CallId;
  /** The tool's result, as text for the model. */
  output: string;
  /** True if the tool failed. */
  isError?: boolean;
}

/** Payload of `call_progress`. */
export interface CallProgress {
  /** The tool call; absent if a hook is at work. */
  toolCallId?: CallId;
  /** The hook call; absent if a tool is at work. */
  hookCallId?: CallId;
  /** Its current activity, for the user. */
  message?: string;
}

/** Payload of `approval_response`. */
export interface ApprovalResponse {
  /** The approval. */
  approvalId: ApprovalId;
  /** The decision. */
  review: Decision;
  /** The hash of the call that was shown. The answer is refused if the approval is about another one. */
  argumentsHash?: string;
  /** The message to the model if it is denied. */
  customDenyMessage?: string;
}

/** A decision on an approval: one of the four options, or one of v1's words for it. */
export type Decision = "allow_once" | "allow_always" | "reject_once" | "reject_always" | "reject_and_stop";

/** Payload of `set_tools`. Absent fields do not change. */
export interface SetTools {
  /** The names of the tools that are switched off: at most 256. */
  off?: Array<string>;
  /**
   * The session's own approval policy; without rules to remove it. It can only be stricter than the
   * deployment's.
   */
  approvals?: ApprovalPolicy;
}

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

/** Payload of `withdraw_approval`. */
export interface WithdrawApproval {
  /** The approval that got the lasting answer. */
  approvalId: ApprovalId;
}

/** Payload of `register_tools`. */
export interface RegisterTools {
  /** The tools; empty for none. */
  tools: Array<ToolOffer>;
}

/**
 * A pattern in a tool's schema that the arguments of its calls are not checked against. The tool can be used all
 * the same; it should check them itself.
 */
export interface UncheckedPattern {
  /** The tool. */
  tool: string;
  /** Where the pattern stands in the tool's parameters: a JSON Pointer. */
  at: string;
  /** Why. */
  reason: UncheckedReason;
}

/** Why a pattern is not checked. */
export type UncheckedReason = "unsupported" | "too_large";

/** An unanswered tool call. */
export interface PendingCall {
  /** The call. */
  toolCallId: CallId;
  /** Its turn. */
  turnId: TurnId;
  /** The tool. */
  name: string;
  /** The arguments, JSON text. */
  arguments: string;
  /** The time at which it fails if it is not answered. */
  deadline: Timestamp;
  /** Who runs it. */
  place?: ToolPlace;
}

/** Who runs a tool call. */
export type ToolPlace = "client" | "server";

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

/** Payload of `tools`. */
export interface Tools {
  /** The tools, in the order in which requests send them. */
  items: Array<SessionTool>;
  /** The estimated tokens that those that are switched on take in each request. */
  tokens: number;
  /**
   * The MCP servers of this server, sorted by name; absent if there are none. They are the same for all sessions.
   * One that is up joins a session's tools at its next turn or compaction.
   */
  servers?: Array<ToolServer>;
}

/** A tool of a session. */
export interface SessionTool {
  /** Its name. One of an MCP server begins with the server's name and `__`. */
  name: string;
  /** Its description, as the model gets it. */
  description: string;
  /** Who runs it. */
  place?: ToolPlace;
  /** The estimated tokens that it takes in each request while it is switched on. */
  tokens: number;
  /** True if it is switched off in this session. */
  off?: boolean;
  /** What it does to the world, by its own account. */
  annotations?: ToolAnnotations;
}

/** An MCP server: what its users may know of it. */
export interface ToolServer {
  /** Its name, as its operator gave it. */
  name: string;
  /** The beginning of its tools' names, up to `__`; absent if it is switched off. */
  prefix?: string;
  /** What it is doing. */
  state: ToolServerState;
  /** Why it is not up; while it is started again, why it was not. */
  failure?: ToolServerFailure;
  /** The times that it came up again after the first. */
  restarts: number;
  /** Its tools that are not offered, each with the reason: the first 32. */
  leftOut?: Array<string>;
}

/** What an MCP server is doing. */
export type ToolServerState = "starting" | "ready" | "idle" | "failing" | "disabled" | "stopping";

/** Why an MCP server is not up. The operator sees more. */
export type ToolServerFailure =
  | "cannot_start"
  | "ended"
  | "timeout"
  | "unreachable"
  | "refused"
  | "wrong_answer"
  | "disconnected";

/** Payload of `tool_call`. */
export interface ToolCall {
  /** The call; delivered at least once. */
  toolCallId: CallId;
  /** Its turn. */
  turnId: TurnId;
  /** The tool. */
  name: string;
  /** The arguments, JSON text that the tool's schema accepts. */
  arguments: string;
  /** The time at which it fails if it is not answered. */
  deadline: Timestamp;
  /** Who runs it. */
  place?: ToolPlace;
}

/** Payload of `call_resolved`. */
export interface CallResolved {
  /** The call. */
  toolCallId: CallId;
  /** Its outcome. */
  outcome: CallOutcome;
  /** The approval that is decided; absent if the call itself is over. */
  approvalId?: ApprovalId;
  /** The answer; absent if there was none. */
  option?: ApprovalOption;
  /** The client that answered. */
  by?: string;
}

/** The outcome of a tool call. */
export type CallOutcome =
  | "answered"
  | "failed"
  | "timed_out"
  | "dropped"
  | "allowed"
  | "rejected"
  | "expired";

/** Payload of `call_progressed`. */
export interface CallProgressed {
  /** The tool call, if a tool reported. */
  toolCallId?: CallId;
  /** The hook call, if a hook reported. */
  hookCallId?: CallId;
  /** The current activity. */
  message?: string;
  /** The new time at which it fails if it is not answered. */
  deadline: Timestamp;
}

/** Payload of `tool_cancelled`: the answer is no longer awaited. The durable event is `call_resolved`. */
export interface ToolCancelled {
  /** The call. */
  toolCallId: CallId;
  /** The tool. */
  name: string;
  /** The turn that made it. */
  turnId: TurnId;
  /** `timed_out`, or `dropped` if its turn ended. */
  outcome: CallOutcome;
}

/** Payload of `run_tool`. The call itself is the durable event `tool_call`, which comes first. */
export interface RunTool {
  /** The call. */
  toolCallId: CallId;
  /** True if this client was asked before, on an earlier connection: it ignores this if the tool is still running. */
  again?: boolean;
}
