// Written from the Rust types by `UPDATE=1 cargo test -p reseed-protocol`. Do not edit.

import type { ApprovalId, CallId, Timestamp, TurnId } from "./basics.js";

/** A tool that the model may call. */
export interface ToolOffer {
  /** Its name: 1 to 64 of `A-Za-z0-9_-`. */
  name: string;
  /** A description for the model. */
  description: string;
  /** JSON Schema of its arguments, as an object. Absent or `null` if it takes none. */
  parameters: Record<string, unknown> | null;
  /** The timeout of a call in milliseconds; absent: the server's default. */
  timeoutMs?: number;
  /** True if a call may safely run twice: a new host is asked to run it even if an earlier host was. */
  idempotent?: boolean;
  /** True if calls of this tool run one after another. */
  sequential?: boolean;
  /**
   * True if a call of this tool ends the turn, once the other calls of the same answer have their results. The
   * client gives the result with its next input, in `history`. No client is asked to run it.
   */
  endsTurn?: boolean;
  /** The effects of the tool. The defaults of the approval policy follow from them. */
  annotations?: ToolAnnotations;
}

/** The effects of a tool, as the tool declares them, in MCP's terms. Absent fields are unknown. */
export interface ToolAnnotations {
  /** True if it changes nothing. */
  readOnly?: boolean;
  /** True if its changes may be destructive. */
  destructive?: boolean;
  /** True if a repeated call with the same arguments has no further effect. */
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
  /** The tool call; absent if a hook reports. */
  toolCallId?: CallId;
  /** The hook call; absent if a tool reports. */
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

/** A decision on an approval: one of the four options, or v1's word for one. */
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
 * Rules for a session's tools. The first rule that matches a call decides; without one, a tool that the server
 * runs is `auto` if it is read-only and `ask` otherwise, and a tool of the client's is `auto`.
 */
export interface ApprovalPolicy {
  /** The rules: at most 64. */
  rules: Array<ApprovalRule>;
}

/** A rule of an approval policy. */
export interface ApprovalRule {
  /** The tools: a name, in which `*` matches any characters. */
  tool: string;
  /**
   * Patterns of arguments: from a JSON Pointer to a regular expression that must match the whole value. A value
   * that is not a text is compared as JSON. All of them must match; a missing argument does not match.
   */
  arguments?: Record<string, string>;
  /** The decision. */
  policy: ApprovalDecision;
}

/** Says whether a tool's calls run without asking, only after a person allows them, or never. */
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
 * A pattern in a tool's schema that arguments are not checked against. The tool can still be used, and should
 * check them itself.
 */
export interface UncheckedPattern {
  /** The tool. */
  tool: string;
  /** The place of the pattern in the tool's parameters, as a JSON Pointer. */
  at: string;
  /** The reason. */
  reason: UncheckedReason;
}

/** The reason why a pattern is not checked. */
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
  /** Its deadline: without an answer, it then fails. */
  deadline: Timestamp;
  /** The side that runs it. */
  place?: ToolPlace;
}

/** The side that runs a tool call. */
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
  /** The arguments that it would get, as JSON text. */
  arguments: string;
  /** SHA-256 of where the call runs, the tool's name and these arguments, in hexadecimal. */
  argumentsHash: string;
  /** The arguments for people: invisible and direction-changing characters are written as `⟨U+202E⟩`. */
  display: string;
  /** The arguments as the model wrote them, if a hook has changed them. */
  proposedArguments?: string;
  /** The side that would run it. */
  place?: ToolPlace;
  /** The reason why a person must decide. */
  reason: string;
  /** The possible answers. */
  options: Array<ApprovalOption>;
  /** The loop's generation. */
  generation: number;
  /** The time from which a missing answer counts as a refusal. */
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
  /** The estimated tokens of the tools that are switched on, in each request. */
  tokens: number;
  /**
   * The MCP servers of this server, sorted by name; absent if there are none. They are the same for all
   * sessions. A server that is up adds its tools to a session at the session's next turn or compaction.
   */
  servers?: Array<ToolServer>;
}

/** A tool of a session. */
export interface SessionTool {
  /** Its name. The name of an MCP server's tool begins with the server's name and `__`. */
  name: string;
  /** Its description, as the model gets it. */
  description: string;
  /** The side that runs it. */
  place?: ToolPlace;
  /** The estimated tokens that it takes in each request while it is switched on. */
  tokens: number;
  /** True if it is switched off in this session. */
  off?: boolean;
  /** Its effects, as the tool declares them. */
  annotations?: ToolAnnotations;
}

/** An MCP server, as far as users may see it. */
export interface ToolServer {
  /** Its name, chosen by the operator. */
  name: string;
  /** The beginning of its tools' names, up to `__`; absent if the server is disabled. */
  prefix?: string;
  /** Its state. */
  state: ToolServerState;
  /** Why it is down or, while it is started again, why it was down. */
  failure?: ToolServerFailure;
  /** The number of times that it was started again. */
  restarts: number;
  /** The first 32 of its tools that are not offered, each with the reason. */
  leftOut?: Array<string>;
}

/** The state of an MCP server. */
export type ToolServerState = "starting" | "ready" | "idle" | "failing" | "disabled" | "stopping";

/** The reason why an MCP server is down. Operators see more details. */
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
  /** Its deadline: without an answer, it then fails. */
  deadline: Timestamp;
  /** The side that runs it. */
  place?: ToolPlace;
}

/** Payload of `call_resolved`. */
export interface CallResolved {
  /** The call. */
  toolCallId: CallId;
  /** Its outcome. */
  outcome: CallOutcome;
  /** The approval that was decided; absent if the call itself has ended. */
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
  /** Its new deadline: without an answer, it then fails. */
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
  /**
   * True if this client was already asked on an earlier connection. It ignores this event if the tool is still
   * running.
   */
  again?: boolean;
}
