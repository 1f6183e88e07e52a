// Written from the Rust types by `UPDATE=1 cargo test -p reseed-protocol`. Do not edit.

import type { Approval, ApprovalPolicy, StandingApproval } from "./approvals.js";
import type { CallId, CommandId, ConnectionId, EntryId, JobId, LeafId, SessionId, Timestamp, TurnId } from "./basics.js";
import type { SessionRole, StrategySettings, ToolAnnotations } from "./commands.js";
import type { Part, Usage } from "./content.js";
import type { ContextEnvelope, ContextInfo } from "./context.js";
import type { Entry, SummaryForm } from "./entries.js";
import type { ErrorBody } from "./errors.js";
import type { CompactionPrepared, CompactionRung, FailedRung, Host, Participant, Retained, ToolPlace, TurnStatus } from "./events.js";
import type { Receipt } from "./receipt.js";

/** A reply with its payload. */
export type Reply =
  | { type: "welcome"; payload: Welcome }
  | { type: "session_opened"; payload: SessionOpened }
  | { type: "sessions"; payload: Sessions }
  | { type: "models"; payload: Models }
  | { type: "entries"; payload: Entries }
  | { type: "pong"; payload: Pong }
  | { type: "accepted"; payload: Accepted }
  | { type: "ok"; payload: Done }
  | { type: "context_info"; payload: ContextInfo }
  | { type: "context"; payload: Context }
  | { type: "tools"; payload: Tools }
  | { type: "compaction_preview"; payload: CompactionPreview }
  | { type: "navigated"; payload: Navigated }
  | { type: "forked"; payload: Forked }
  | { type: "tree"; payload: Tree }
  | { type: "history_hits"; payload: HistoryHits }
  | { type: "error"; payload: ErrorBody };

/** Payload of `welcome`. */
export interface Welcome {
  /** 2. */
  protocolVersion: number;
  /** The server. */
  server: Server;
  /** Optional features of this server, by name. */
  features: Array<string>;
  /** The permissions of these credentials: `sessions`, `operator`. */
  scopes: Array<string>;
  /** Identifies this connection among those that are subscribed to a session. */
  connectionId: ConnectionId;
  /** The interval between the server's pings in milliseconds. */
  heartbeatMs: number;
  /** The server's limits. */
  limits: Limits;
}

/** The server. */
export interface Server {
  /** `reseed`. */
  name: string;
  /** Its version. */
  version: string;
  /** Identifies this process; changes after a restart. */
  instance: string;
  /** The provider: `offline` or `openai`. */
  provider: string;
  /** A sentence for the user, for instance about the offline model. */
  notice?: string;
}

/** The server's limits. */
export interface Limits {
  /** Bytes of a frame. */
  messageBytesMax: number;
  /** Nesting of arrays and objects in a frame. */
  depthMax: number;
  /** Queued inputs. */
  queueItemsMax: number;
  /** Tools that one client may offer. */
  toolsMax: number;
  /** Hooks that one client may offer. */
  hooksMax: number;
  /** Sessions that one connection may subscribe to. */
  subscriptionsMax: number;
  /** Connections of one session that `presence` names. */
  presenceMax: number;
  /** Entries of a page of `get_entries`. */
  pageEntriesMax: number;
  /** Durable events that a `resume` replays; after more it answers with a snapshot. */
  replayEventsMax: number;
  /** Refused frames in a row after which the connection is closed. */
  badFramesMax: number;
  /** Seconds for which a preview can be committed. */
  previewSecs: number;
  /** Seconds after which a connection on standby hosts in place of one that is away. */
  hostAwaySecs: number;
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

/** Payload of `sessions`. */
export interface Sessions {
  /** The sessions, newest first. */
  items: Array<SessionItem>;
  /** The cursor for the next page; absent on the last. */
  nextCursor?: string;
}

/** A session in a list. */
export interface SessionItem {
  /** The session. */
  sessionId: SessionId;
  /** Its name; empty if it has none. */
  name: string;
  /** The time of its creation. */
  createdAt: Timestamp;
  /** The time of the last write to it. */
  updatedAt: Timestamp;
  /** The number of entries in its tree. */
  entries: number;
  /** Tokens of its next request. */
  tokenCount: number;
  /** `tokenCount` as a share of the window, not clamped. */
  usageRatio: number;
  /** The known cost of its requests, in billionths of a US dollar; absent if no cost is known. */
  costNanoUsd?: number;
  /** Its requests of unknown cost, which are not in `costNanoUsd`; only with that, and only if there are some. */
  unpricedRequests?: number;
  /** Its state. */
  state: SessionState;
  /** True if it was deleted: remove it from the list. Only in `session_changed`. */
  deleted?: boolean;
}

/** The state of a session. */
export type SessionState = "idle" | "running" | "compacting";

/** Payload of `entries`. */
export interface Entries {
  /** The entries, oldest first. */
  items: Array<Entry>;
  /** The session's leaf, from which it continues. */
  leafId: LeafId;
  /** This reply covers everything up to this durable event. */
  asOfSeq: number;
  /** True if there are more in the requested direction. */
  more: boolean;
  /** The `seq` of damaged records in this range; absent if there are none. */
  damaged?: Array<number>;
}

/** Payload of `session_opened`: the whole state as of `asOfSeq`. */
export interface SessionOpened {
  /** The session. */
  sessionId: SessionId;
  /** This connection's role. */
  role: SessionRole;
  /** The connection that hosts the tools and hooks; absent if none does. */
  host?: Host;
  /**
   * Patterns of the tools that this command offered which the arguments of calls are not checked against: the
   * first 32.
   */
  uncheckedPatterns?: Array<UncheckedPattern>;
  /** The connections that are subscribed to the session, this one included, in the order in which they came. */
  presence: Array<Participant>;
  /** Identifies the log; with `seq`, a position to resume from. */
  epoch: string;
  /** This reply covers everything up to this durable event; live events follow. */
  asOfSeq: number;
  /** The session's leaf, from which it continues. */
  leafId: LeafId;
  /** The session's state. */
  state: SessionState;
  /** The number of times that the loop was seeded. */
  generation: number;
  /** The session's name. */
  name?: string;
  /** The model. */
  model: string;
  /** The strategy's short name. */
  strategy: string;
  /** The other settings. */
  settings: SessionSettings;
  /** The size of the context. */
  contextInfo: ContextInfo;
  /** The result of a `resume`; absent if none was requested. */
  resumed?: Resumed;
  /** The newest entries on the path, oldest first; absent after a `replay`. */
  entries?: Array<Entry>;
  /** True if there are older entries on the path than these. */
  more?: boolean;
  /** The running turn. */
  turn?: RunningTurn;
  /** The last turn, if it ended without an answer and nothing was said since: what `retry_turn` would retry. */
  lastTurn?: EndedTurn;
  /**
   * The newest turns that ended without an answer, oldest first, each with its position in the history,
   * including `lastTurn`.
   */
  unansweredTurns?: Array<UnansweredTurn>;
  /** The newest failed compactions that somebody waited for, oldest first. */
  failedCompactions?: Array<FailedCompaction>;
  /** The running compaction. */
  compaction?: RunningCompaction;
  /** The prepared compaction that is held until due, with current counts. */
  held?: CompactionPrepared;
  /** Queued inputs. */
  queue: Array<QueueItem>;
  /** Unanswered tool calls. */
  pending: Array<PendingCall>;
  /** Calls that a person must allow first. */
  approvals?: Array<Approval>;
  /** Lasting answers to approvals. */
  standingApprovals?: Array<StandingApproval>;
  /** The entries that every compaction keeps verbatim. */
  pins?: Array<Pin>;
  /** The compactions that were undone. */
  undone?: Array<EntryId>;
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

/** Settings of a session besides model and strategy. */
export interface SessionSettings {
  /** The system prompt; absent to use the deployment's. */
  instructions?: string;
  /** 0 to 2; absent to use the provider's default. */
  temperature?: number;
  /** The most tokens of an answer. */
  maxOutputTokens?: number;
  /** The reasoning effort. */
  reasoningEffort?: string;
  /** The strategy's settings that differ from the deployment's. */
  strategySettings?: StrategySettings;
  /** The window learned from a provider's refusal, if smaller than the configured one. */
  learnedWindowTokens?: number;
  /** The tools that are switched off in this session. */
  toolsOff?: Array<string>;
  /** The session's own approval policy. It can only be stricter than the deployment's. */
  approvals?: ApprovalPolicy;
}

/** The result of a `resume`. */
export type Resumed = "replay" | "snapshot";

/** A turn that is running. */
export interface RunningTurn {
  /** The turn. */
  turnId: TurnId;
  /** Its items that are not entries yet. */
  items: Array<RunningItem>;
}

/** An item being streamed. */
export interface RunningItem {
  /** The id that its entry will have. */
  itemId: EntryId;
  /** Its parts so far. */
  parts: Array<RunningPart>;
}

/** A part of an answer that is being streamed. A tool call has no id yet: the durable event `tool_call` names it. */
export type RunningPart =
  | {
      type: "text";
      /** The text so far. */
      text: string;
    }
  | {
      type: "reasoning";
      /** The text so far. */
      text: string;
    }
  | {
      type: "tool_call";
      /** The tool's name. */
      name: string;
      /** The arguments so far: the beginning of a JSON text. */
      arguments: string;
      /** True if the call is complete. */
      finished?: boolean;
    };

/** A turn that ended without an answer; the fields are those of `turn_finished`. */
export interface EndedTurn {
  /** The turn. */
  turnId: TurnId;
  /** Its status. */
  status: TurnStatus;
  /** The error, on `failed`. */
  error?: ErrorBody;
}

/** A turn that ended without an answer, with its position in the history. */
export interface UnansweredTurn {
  /** The turn. */
  turnId: TurnId;
  /** Its status. */
  status: TurnStatus;
  /** The error, on `failed`. */
  error?: ErrorBody;
  /** The newest entry when it ended. */
  leafId: LeafId;
}

/** A failed compaction, with its position in the history. */
export interface FailedCompaction {
  /** The job. */
  jobId: JobId;
  /** The error. */
  error: ErrorBody;
  /** The newest entry when it failed. */
  leafId: LeafId;
}

/** A compaction that is running. */
export interface RunningCompaction {
  /** The job. */
  jobId: JobId;
  /** Its phase. */
  phase: string;
  /** True if turns continue meanwhile. */
  background?: boolean;
}

/** A queued input. */
export interface QueueItem {
  /** The command that sent it. */
  commandId: CommandId;
  /** Its content. */
  content: Array<Part>;
  /** If true, it is sent with the next request of the running turn, before other queued inputs. */
  steer?: boolean;
  /** Set for a client's message (`append_custom_message`), which requests no answer. */
  custom?: QueuedCustom;
  /**
   * The `navigate` during which it was sent, for whose target it is. If the move fails, it stays in the queue
   * until another move arrives or `edit_queue` releases it.
   */
  after?: CommandId;
  /** The id that its entry will have; absent for a client's message, and for inputs queued by older versions. */
  entryId?: EntryId;
}

/** The further fields of a client's queued message. */
export interface QueuedCustom {
  /** The id that its entry will have. */
  entryId: EntryId;
  /** The kind of message, chosen by the client. */
  customType: string;
  /** True if it should be shown to people. */
  display: boolean;
  /** Further data for programs; never sent to the model. */
  details?: unknown;
}

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

/** An entry that every compaction keeps verbatim. */
export interface Pin {
  /** The entry. */
  entryId: EntryId;
  /** The entry that was pinned, if this one only accompanies it: a tool result with its call. */
  with?: EntryId;
  /** The compaction that had replaced it when it was pinned; absent if the model saw it. */
  under?: EntryId;
}

/** Payload of `models`. */
export interface Models {
  /** The model of new sessions. */
  model: string;
  /** True if a session may also choose a model that is not in the list, by its name. */
  others: boolean;
  /** The models: the one of new sessions first, the others in the order of the deployment or of the provider. */
  items: Array<ModelItem>;
}

/** A model. What nobody has said of it is absent. */
export interface ModelItem {
  /** Its name, for `set_model`. */
  id: string;
  /** Its window in tokens. */
  windowTokens?: number;
  /** Its price. */
  price?: ModelPrice;
  /**
   * True if it takes tools, as its server says. False if it does not, if it has refused them, or if the
   * deployment has switched them off.
   */
  tools?: boolean;
  /** True if it takes images, as its server says; false if it does not, or has refused them. */
  images?: boolean;
}

/** A price, in billionths of a dollar for a million tokens. */
export interface ModelPrice {
  /** Of input. */
  inputNanoUsd: number;
  /** Of input that is read from the provider's cache. */
  cachedNanoUsd: number;
  /** Of input that is written to the provider's cache. */
  cacheWriteNanoUsd: number;
  /** Of output. */
  outputNanoUsd: number;
}

/** Payload of `pong`. */
export interface Pong {
  /** The session's newest durable event; absent if the ping named no session. */
  seq?: number;
  /**
   * True if the client has seen it; if `false`, open the session again with `resume`. Absent if the ping named
   * no session.
   */
  inSync?: boolean;
  /** The server's time. */
  serverTime: Timestamp;
}

/** Payload of `accepted`. */
export interface Accepted {
  /** The entry that was written; absent while the input is queued. */
  entryId?: EntryId;
  /** The turn that was started; absent while the input is queued. */
  turnId?: TurnId;
  /** True if the input is queued. */
  queued: boolean;
  /** This reply covers everything up to this durable event; what the command caused follows. */
  asOfSeq: number;
  /** True if the command had been executed before; this is its first reply. */
  duplicate?: boolean;
}

/** Payload of `ok`. */
export interface Done {
  /** The compaction that was started. */
  jobId?: JobId;
  /** True if another connection hosts the session's tools and hooks: what was offered waits. */
  standby?: boolean;
  /** Patterns of the offered tools' schemas that the arguments of calls are not checked against: the first 32. */
  uncheckedPatterns?: Array<UncheckedPattern>;
  /** The entry that was written, or will be before the next request. */
  entryId?: EntryId;
  /** This reply covers everything up to this durable event; what the command caused follows. */
  asOfSeq?: number;
  /** True if the command had been executed before; this is its first reply. */
  duplicate?: boolean;
}

/** Payload of `context`. */
export interface Context {
  /** The next request's envelope. */
  envelope?: ContextEnvelope;
  /** The same as readable text. */
  markdown?: string;
  /** Its tokens. */
  tokens: number;
  /** The receipt it would have compared with the session's previous request. */
  receipt?: Receipt;
}

/** Payload of `compaction_preview`: what `start_compaction { previewId }` would do. */
export interface CompactionPreview {
  /** Identifies it in `start_compaction`. */
  previewId: JobId;
  /** The time of its expiry. */
  expiresAt: Timestamp;
  /** The summary; empty if nothing would be summarised. */
  summary: string;
  /** Its form; absent if none would be made, and if a hook made it. */
  form?: SummaryForm;
  /** The fallback step that succeeded. */
  rung: CompactionRung;
  /** The steps tried before, and why each failed or saved too little. */
  failedRungs?: Array<FailedRung>;
  /** The first entry to be kept; absent if none would be. */
  firstKeptEntryId?: EntryId;
  /** Older entries to be kept verbatim. */
  keptEntryIds: Array<EntryId>;
  /** Entries whose tool results would be shown as a short note. */
  clearedEntryIds?: Array<EntryId>;
  /** The messages that the model would no longer see. */
  dropped: Stretch;
  /** The messages that it would still see, without the summary. */
  kept: Stretch;
  /** Tokens of the next request. */
  tokensBefore: number;
  /** Tokens of the same request after the compaction. */
  tokensAfter: number;
  /** The facts checked in the summary. */
  retained?: Retained;
  /** The usage of the summary requests; absent if the model was not used. */
  summaryUsage?: Usage;
}

/** Some messages of a context. */
export interface Stretch {
  /** The number of messages. */
  count: number;
  /** Their tokens. */
  tokens: number;
  /** The first one's entry. */
  from?: EntryId;
  /** The last one's entry. */
  to?: EntryId;
}

/** Payload of `navigated`. */
export interface Navigated {
  /** The session's leaf, from which it continues. */
  leafId: LeafId;
  /** The input to edit, if the move was to before it. */
  input?: Array<Part>;
  /** The summary of the abandoned branch. */
  branchSummaryEntryId?: EntryId;
  /** This reply covers everything up to this durable event; what the command caused follows. */
  asOfSeq: number;
  /** True if the command had been executed before; this is its first reply. */
  duplicate?: boolean;
}

/** Payload of `forked`. */
export interface Forked {
  /** The new session; open it like any other. */
  sessionId: SessionId;
  /** The input to edit, if the fork was before it. */
  input?: Array<Part>;
  /** True if the command had been executed before; this is its first reply. */
  duplicate?: boolean;
}

/** Payload of `tree`. */
export interface Tree {
  /** The entries, parents before their children. */
  nodes: Array<TreeNode>;
  /** The session's leaf, from which it continues. */
  leafId: LeafId;
  /** This reply covers everything up to this durable event. */
  asOfSeq: number;
  /**
   * True if entries were left out: those below nodes whose `childCount` is larger than their number of children
   * here.
   */
  more: boolean;
}

/** An entry of the tree. */
export interface TreeNode {
  /** The entry. */
  entryId: EntryId;
  /** Its parent; `null` for a root. */
  parentId: EntryId | null;
  /** Its type; a message's includes its role, as in `message:user`. */
  type: string;
  /** The start of its text, one line of at most 80 characters. */
  preview: string;
  /** Its label. */
  label?: string;
  /** The time of its creation. */
  timestamp: Timestamp;
  /** The number of its children. */
  childCount: number;
}

/** Payload of `history_hits`. */
export interface HistoryHits {
  /**
   * What was found. In one session the newest entry first, whatever its branch; in all of the user's sessions
   * the session first that was written to last, and in each the newest entry.
   */
  items: Array<HistoryHit>;
  /** True if there may be more: the search ended at its limit, or before it had read everything. */
  more: boolean;
}

/** An entry that was found. */
export interface HistoryHit {
  /** Its session. */
  sessionId: SessionId;
  /** The session's name; absent if it has none. */
  name?: string;
  /** The entry. */
  entryId: EntryId;
  /** The time of its creation. */
  timestamp: Timestamp;
  /** Who wrote it. */
  role: HitRole;
  /** The text around the first match, at most 300 characters. Text of the history: show it, do not follow it. */
  snippet: string;
}

/** The author of an entry that was found. */
export type HitRole = "user" | "assistant" | "tool" | "summary";
