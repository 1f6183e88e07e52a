// Written from the Rust types by `UPDATE=1 cargo test -p reseed-protocol`. Do not edit.

import type { CommandId, ConnectionId, EntryId, LeafId, SessionId, Timestamp } from "./basics.js";
import type { CompactionPrepared, FailedCompaction, HeldCompaction, Pin, RunningCompaction, StrategySettings } from "./compaction.js";
import type { AnswerOptions, ContextInfo } from "./context.js";
import type { ErrorBody } from "./errors.js";
import type { HookOffer } from "./hooks.js";
import type { Approval, ApprovalPolicy, PendingCall, StandingApproval, ToolOffer, UncheckedPattern } from "./tools.js";
import type { Entry } from "./tree.js";
import type { EndedTurn, QueueItem, RunningTurn, UnansweredTurn } from "./turn.js";

/** Payload of `hello`. */
export interface Hello {
  /** 2. */
  protocolVersion: number;
  /**
   * Stable within a tab, and different in every tab. A newer connection with the same id takes over the tools
   * and hooks that the older one hosted.
   */
  clientId?: string;
  /** The client program, for the operator. */
  client?: Software;
  /** A one-time ticket from `POST /api/tickets`. */
  ticket?: string;
  /** A token from `AUTH_TOKENS`, or a signed one (JWT). */
  token?: string;
}

/** A program and its version. */
export interface Software {
  /** Its name. */
  name: string;
  /** Its version. */
  version: string;
}

/** Payload of `authenticate`: exactly one of its fields. */
export interface Authenticate {
  /** A one-time ticket from `POST /api/tickets`. */
  ticket?: string;
  /** A token from `AUTH_TOKENS`, or a signed one (JWT). */
  token?: string;
}

/** Payload of `open_session`. */
export interface OpenSession {
  /** Writer (the default) or observer. */
  role?: SessionRole;
  /** The position at which this client left off. */
  resume?: Resume;
  /** The number of newest entries in the reply; absent: 50. */
  entries?: number;
  /** Sends deltas (the default), or only whole entries. */
  deltas?: boolean;
  /**
   * `false` keeps a new session in the server's memory only, until nobody has used it for an hour or the server
   * ends. Lists do not show it.
   */
  store?: boolean;
  /** Tools to offer, as with `register_tools`. */
  tools?: Array<ToolOffer>;
  /** Hooks to offer, as with `register_hooks`. */
  hooks?: Array<HookOffer>;
}

/** The role of a connection in a session. */
export type SessionRole = "writer" | "observer";

/** A position in a session's log and in the items that were running. */
export interface Resume {
  /** Identifies the log. */
  epoch: string;
  /** The last durable event received. */
  seq: number;
  /** The position in each item that has no entry yet. If only `item_started` has arrived, part and offset are 0. */
  items?: Array<ResumeItem>;
}

/** A position in a running item. */
export interface ResumeItem {
  /** The item. */
  itemId: EntryId;
  /** Its part. */
  part: number;
  /** The UTF-16 code units received of that part. */
  offset: number;
}

/** Payload of `list_sessions`. */
export interface ListSessions {
  /** `nextCursor` of the previous page. */
  cursor?: string;
  /** The maximum number of sessions, 1 to 200; absent: 50. */
  limit?: number;
  /** Text that the name must contain. */
  search?: string;
  /** Sends `session_changed` events from now on; `false` stops them; absent: unchanged. */
  watch?: boolean;
}

/** Payload of `rename_session`. */
export interface RenameSession {
  /** Its new name, 1 to 200 characters. */
  name: string;
}

/** Payload of `ping`. */
export interface Ping {
  /** The last durable event that this client received. */
  seq?: number;
}

/** Payload of `set_model`. */
export interface SetModel {
  /** The model's name, as used by the provider. */
  model: string;
  /** The reasoning effort, in the provider's terms. */
  reasoningEffort?: string;
}

/** Payload of `set_instructions`. */
export interface SetInstructions {
  /** The system prompt; empty for none, absent for the deployment's own. */
  instructions?: string;
}

/** Payload of `set_options`. Absent fields return to the provider's default. */
export interface SetOptions {
  /** 0 to 2. */
  temperature?: number;
  /** 0 to 1. */
  topP?: number;
  /** The maximum number of tokens of an answer, at least 1. */
  maxOutputTokens?: number;
  /** The form of answers. */
  answer?: AnswerOptions;
}

/** Payload of `welcome`. */
export interface Welcome {
  /** 2. */
  protocolVersion: number;
  /** The server. */
  server: Server;
  /** Optional features of this server, by name. */
  features: Array<string>;
  /**
   * The permissions of these credentials, except those that others imply: `sessions`, `read`, `operator`,
   * `operator.content`.
   */
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
  /** Connections of one session that `presence` lists. */
  presenceMax: number;
  /** Entries of a page of `get_entries`. */
  pageEntriesMax: number;
  /** Durable events that a `resume` replays; beyond that, it returns a snapshot. */
  replayEventsMax: number;
  /** Consecutive refused frames after which the connection is closed. */
  badFramesMax: number;
  /** Seconds for which a preview can be applied. */
  previewSecs: number;
  /** Seconds after which a connection on standby replaces a host that is away. */
  hostAwaySecs: number;
}

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
  /** Tokens of its next request, as of its last finished turn or compaction. */
  tokenCount: number;
  /** `tokenCount` as a share of the window, not clamped. */
  usageRatio: number;
  /** The known cost of its requests, in billionths of a US dollar; absent if no cost is known. */
  costNanoUsd?: number;
  /**
   * The number of its requests with an unknown cost, which `costNanoUsd` does not include. Present only beside
   * `costNanoUsd`, and only if there are any.
   */
  unpricedRequests?: number;
  /** Its state. */
  state: SessionState;
  /** True if it was deleted: remove it from the list. Only in `session_changed`. */
  deleted?: boolean;
}

/** The state of a session. */
export type SessionState = "idle" | "running" | "compacting";

/** Payload of `session_opened`: the whole state as of `asOfSeq`. */
export interface SessionOpened {
  /** The session. */
  sessionId: SessionId;
  /** This connection's role. */
  role: SessionRole;
  /** The connection that hosts the tools and hooks; absent if none does. */
  host?: Host;
  /** Patterns, in the tools that this command offered, that arguments are not checked against: the first 32. */
  uncheckedPatterns?: Array<UncheckedPattern>;
  /** The connections that are subscribed to the session, including this one, in order of arrival. */
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
  /** The last turn, if it ended without an answer and nothing was said since. `retry_turn` would retry it. */
  lastTurn?: EndedTurn;
  /**
   * The newest turns that ended without an answer, oldest first, each with its position in the history,
   * including `lastTurn`.
   */
  unansweredTurns?: Array<UnansweredTurn>;
  /** The newest failed compactions that a user waited for, oldest first. */
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

/** The connection that hosts a session's tools and hooks. */
export interface Host {
  /** The connection; the last one if it is away. */
  connectionId: ConnectionId;
  /** Its `clientId`. A new connection with the same id takes its place. */
  clientId?: string;
  /** True if it is not connected. */
  away?: boolean;
}

/** A connection that is subscribed to a session. */
export interface Participant {
  /** The connection. */
  connectionId: ConnectionId;
  /** Its `clientId`. */
  clientId?: string;
  /** The client program. */
  client?: Software;
  /** Its role. */
  role: SessionRole;
  /** True if it offers tools or hooks: it hosts the session, or is on standby. */
  offers?: boolean;
}

/** Settings of a session besides model and strategy. */
export interface SessionSettings {
  /** The system prompt; absent to use the deployment's. */
  instructions?: string;
  /** 0 to 2; absent to use the provider's default. */
  temperature?: number;
  /** 0 to 1; absent to use the provider's default. */
  topP?: number;
  /** The maximum number of tokens in an answer. */
  maxOutputTokens?: number;
  /** The form of answers; absent for the provider's default. */
  answer?: AnswerOptions;
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

/** Payload of `models`. */
export interface Models {
  /** The model for new sessions. */
  model: string;
  /** True if a session may also choose a model that is not in the list, by its name. */
  others: boolean;
  /** The models: first the one for new sessions, then the others in the deployment's or the provider's order. */
  items: Array<ModelItem>;
}

/** A model. Unknown properties are absent. */
export interface ModelItem {
  /** Its name, for `set_model`. */
  id: string;
  /** Its window in tokens. */
  windowTokens?: number;
  /** Its price. */
  price?: ModelPrice;
  /**
   * True if its server says that it accepts tools. False if it does not accept them, has refused them, or the
   * deployment has switched them off.
   */
  tools?: boolean;
  /** True if its server says that it accepts images; false if it does not, or has refused them. */
  images?: boolean;
}

/** A price, in billionths of a US dollar per million tokens. */
export interface ModelPrice {
  /** The price of input tokens. */
  inputNanoUsd: number;
  /** The price of input tokens read from the provider's cache. */
  cachedNanoUsd: number;
  /** The price of input tokens written to the provider's cache. */
  cacheWriteNanoUsd: number;
  /** The price of input tokens that the provider's cache keeps for an hour; absent if it is `cacheWriteNanoUsd`. */
  cacheWriteHourNanoUsd?: number;
  /** The price of output tokens. */
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

/** Payload of `session_updated`: absent fields have not changed. */
export interface SessionUpdated {
  /** The session's name. */
  name?: string;
  /** The model. */
  model?: string;
  /** The strategy's short name. */
  strategy?: string;
  /** All other settings. */
  settings?: SessionSettings;
  /** The session's leaf, from which it continues. */
  leafId?: LeafId;
  /** All entries that every compaction keeps verbatim. */
  pins?: Array<Pin>;
  /** All lasting answers to approvals. */
  standingApprovals?: Array<StandingApproval>;
  /** The number of times that the loop was seeded. */
  generation?: number;
  /** The compaction that is now held. Only the server uses it, after a restart. */
  held?: HeldCompaction;
  /**
   * All required client hooks that the session's work now needs: their names and extension points. Only the
   * server uses them, after a restart.
   */
  hooks?: Array<HookOffer>;
  /** The command that caused it. */
  commandId?: CommandId;
}

/** Payload of `host_changed`. */
export interface HostChanged {
  /** The host; absent if there is none. */
  host?: Host;
}

/** Payload of `presence_changed`. */
export interface PresenceChanged {
  /** The current state of the connection. */
  connection: Participant;
  /** True if it has left. */
  left?: boolean;
}

/** Payload of `session_closed`. */
export interface SessionClosed {
  /** The reason, for programs. */
  code: SubscriptionEnd;
  /** The reason, for people. */
  message: string;
  /** True if `open_session` with `resume` may succeed. */
  retriable: boolean;
  /** The underlying error, if it is known. */
  error?: ErrorBody;
}

/** The reason why a subscription ended. */
export type SubscriptionEnd = "deleted" | "failed" | "moved";

/** Payload of `token_expiring`. */
export interface TokenExpiring {
  /** The milliseconds until the server closes the connection with 4401, unless the credentials are renewed. */
  expiresInMs: number;
}
