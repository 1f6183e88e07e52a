// Written from the Rust types by `UPDATE=1 cargo test -p reseed-protocol`. Do not edit.

import type { CallId, CommandId, EntryId, JobId, SessionId, Timestamp, TurnId } from "./basics.js";
import type { SessionRole, StrategySettings } from "./commands.js";
import type { Part, Usage } from "./content.js";
import type { ContextEnvelope, ContextInfo } from "./context.js";
import type { Entry, SummaryForm } from "./entries.js";
import type { ErrorBody, ErrorCode } from "./errors.js";
import type { CompactionPrepared, CompactionRung, FailedRung, Retained, TurnStatus } from "./events.js";
import type { Receipt } from "./receipt.js";

/** A reply with its payload. */
export type Reply =
  | { type: "welcome"; payload: Welcome }
  | { type: "session_opened"; payload: SessionOpened }
  | { type: "sessions"; payload: Sessions }
  | { type: "entries"; payload: Entries }
  | { type: "pong"; payload: Pong }
  | { type: "accepted"; payload: Accepted }
  | { type: "ok"; payload: Done }
  | { type: "context_info"; payload: ContextInfo }
  | { type: "context"; payload: Context }
  | { type: "compaction_preview"; payload: CompactionPreview }
  | { type: "navigated"; payload: Navigated }
  | { type: "forked"; payload: Forked }
  | { type: "tree"; payload: Tree }
  | { type: "error"; payload: ErrorBody };

/** Payload of `welcome`. */
export interface Welcome {
  /** 2. */
  protocolVersion: number;
  /** The server. */
  server: Server;
  /** What this server can do beyond the least: names that a client may look for. */
  features: Array<string>;
  /** What these credentials allow: `sessions`, `operator`. */
  scopes: Array<string>;
  /** The server pings every so many milliseconds. */
  heartbeatMs: number;
  /** What it refuses. */
  limits: Limits;
}

/** The server. */
export interface Server {
  /** `reseed`. */
  name: string;
  /** Its version. */
  version: string;
  /** This process; another one after a restart. */
  instance: string;
  /** The provider it talks to: `offline` or `openai`. */
  provider: string;
  /** A sentence for the user where there is something to know, on the offline model for instance. */
  notice?: string;
}

/** What the server refuses. */
export interface Limits {
  /** Bytes of a frame. */
  messageBytesMax: number;
  /** Nested arrays and objects in a frame. */
  depthMax: number;
  /** Inputs that may wait. */
  queueItemsMax: number;
  /** Tools that one client may offer. */
  toolsMax: number;
  /** Hooks that one client may offer. */
  hooksMax: number;
}

/** Payload of `session_opened`: the whole state as of `asOfSeq`. */
export interface SessionOpened {
  /** The session. */
  sessionId: SessionId;
  /** What this connection is to it. */
  role: SessionRole;
  /** Names the log; with `seq` a place to resume from. */
  epoch: string;
  /** This reply speaks of everything up to this durable event; live events follow above it. */
  asOfSeq: number;
  /** The entry from which the session goes on; `null` before the first. */
  leafId: EntryId | null;
  /** What the session is doing. */
  state: SessionState;
  /** How often the loop was seeded. */
  generation: number;
  /** The session's name. */
  name?: string;
  /** The model. */
  model: string;
  /** The strategy's short name. */
  strategy: string;
  /** The other settings. */
  settings: SessionSettings;
  /** How full the window is. */
  contextInfo: ContextInfo;
  /** How a `resume` was served; absent where none was asked for. */
  resumed?: Resumed;
  /** The newest entries on the path, oldest first; absent after a `replay`. */
  entries?: Array<Entry>;
  /** Whether there are older entries on the path than these. */
  more?: boolean;
  /** The running turn. */
  turn?: RunningTurn;
  /** The last turn, where it ended without an answer and nothing was said since: what `retry_turn` would retry. */
  lastTurn?: EndedTurn;
  /**
   * The newest turns that ended without an answer, oldest first, each with its place in the history; `lastTurn`
   * is among them.
   */
  unansweredTurns?: Array<UnansweredTurn>;
  /** The newest compactions that somebody waited for and that failed, oldest first. */
  failedCompactions?: Array<FailedCompaction>;
  /** The running compaction. */
  compaction?: RunningCompaction;
  /** The compaction that was prepared and is held until it is due, counted as of now. */
  held?: CompactionPrepared;
  /** Inputs that wait. */
  queue: Array<QueueItem>;
  /** Tool calls without an answer. */
  pending: Array<PendingCall>;
  /** The entries that every compaction keeps word for word. */
  pins?: Array<Pin>;
  /** The compactions that were undone. */
  undone?: Array<EntryId>;
}

/** What a session is doing. */
export type SessionState = "idle" | "running" | "compacting";

/** Settings of a session beside model and strategy. */
export interface SessionSettings {
  /** The system prompt; absent for the deployment's. */
  instructions?: string;
  /** 0 to 2; absent for the provider's default. */
  temperature?: number;
  /** Most tokens an answer may have. */
  maxOutputTokens?: number;
  /** How long the model should think. */
  reasoningEffort?: string;
  /** The strategy's settings, where they differ from the deployment's. */
  strategySettings?: StrategySettings;
  /** The window that a refusal of the provider has shown, where it is smaller than the configured one. */
  learnedWindowTokens?: number;
}

/** How a `resume` was served. */
export type Resumed = "replay" | "snapshot";

/** A turn that is running. */
export interface RunningTurn {
  /** The turn. */
  turnId: TurnId;
  /** Its items that are not entries yet. */
  items: Array<RunningItem>;
}

/** An item that is being streamed. */
export interface RunningItem {
  /** The id that its entry will have. */
  itemId: EntryId;
  /** Its parts so far. */
  parts: Array<Part>;
}

/** A turn that ended without an answer; the fields are those of `turn_finished`. */
export interface EndedTurn {
  /** The turn. */
  turnId: TurnId;
  /** How it ended. */
  status: TurnStatus;
  /** What went wrong, on `failed`. */
  error?: ErrorBody;
}

/** A turn that ended without an answer, at its place in the history. */
export interface UnansweredTurn {
  /** The turn. */
  turnId: TurnId;
  /** How it ended. */
  status: TurnStatus;
  /** What went wrong, on `failed`. */
  error?: ErrorBody;
  /** The newest entry when it ended; `null` if there was none. */
  leafId: EntryId | null;
}

/** A compaction that failed, at its place in the history. */
export interface FailedCompaction {
  /** The job. */
  jobId: JobId;
  /** An error code. */
  code: ErrorCode;
  /** What went wrong. */
  message: string;
  /** The newest entry when it failed; `null` if there was none. */
  leafId: EntryId | null;
}

/** A compaction that is running. */
export interface RunningCompaction {
  /** The job. */
  jobId: JobId;
  /** What it is at. */
  phase: string;
  /** Whether turns go on meanwhile. */
  background?: boolean;
}

/** An input that waits. */
export interface QueueItem {
  /** The command that brought it. */
  commandId: CommandId;
  /** What it says. */
  content: Array<Part>;
  /** It goes with the next request of the running turn, before those that wait their own. */
  steer?: boolean;
  /** It is a message of a client's (`append_custom_message`), which asks for no answer. */
  custom?: QueuedCustom;
  /**
   * It was said while this `navigate` was at work, for the place that it goes to. When the move comes to nothing
   * it stays in line until another move arrives or `edit_queue` lets it go.
   */
  after?: CommandId;
  /** The id that its entry will have; absent of a client's message, and of what older versions put in line. */
  entryId?: EntryId;
}

/** What makes a waiting message a client's own. */
export interface QueuedCustom {
  /** The id that its entry will have. */
  entryId: EntryId;
  /** What kind of message, in the client's own words. */
  customType: string;
  /** Whether it should be shown to people. */
  display: boolean;
  /** More for programs; never sent to the model. */
  details?: unknown;
}

/** A tool call without an answer. */
export interface PendingCall {
  /** The call. */
  callId: CallId;
  /** Its turn. */
  turnId: TurnId;
  /** The tool. */
  name: string;
  /** The arguments, JSON text. */
  arguments: string;
  /** When it fails. */
  deadline: Timestamp;
}

/** An entry that every compaction keeps word for word. */
export interface Pin {
  /** The entry. */
  entryId: EntryId;
  /** The entry that was pinned, where this one only goes with it: a tool's answer with its call. */
  with?: EntryId;
  /** The compaction that had taken it out of the model's sight when it was pinned; absent where the model saw it. */
  under?: EntryId;
}

/** Payload of `sessions`. */
export interface Sessions {
  /** The sessions, newest first. */
  items: Array<SessionItem>;
  /** Ask with this for the next page; absent on the last. */
  nextCursor?: string;
}

/** A session in a list. */
export interface SessionItem {
  /** The session. */
  sessionId: SessionId;
  /** Its name; empty where it has none. */
  name: string;
  /** When it was made. */
  createdAt: Timestamp;
  /** When something was last written to it. */
  updatedAt: Timestamp;
  /** How many entries its tree has. */
  entries: number;
  /** Tokens of its next request. */
  tokenCount: number;
  /** Of its window, in percent, held within 0 to 100. */
  usagePercent: number;
  /**
   * What its requests have cost, in billionths of a US dollar, as far as that is known; absent where it is of
   * none.
   */
  costNanoUsd?: number;
  /**
   * Of its requests, those whose cost is not known and not in `costNanoUsd`; only beside it, and only where
   * there are some.
   */
  unpricedRequests?: number;
  /** What it is doing. */
  state: SessionState;
  /** It was deleted: take it out of the list. Only in `session_changed`. */
  deleted?: boolean;
}

/** Payload of `entries`. */
export interface Entries {
  /** The entries, oldest first. */
  items: Array<Entry>;
  /** The entry from which the session goes on; `null` before the first. */
  leafId: EntryId | null;
  /** This reply speaks of everything up to this durable event. */
  asOfSeq: number;
  /** Whether there are more in the direction that was asked for. */
  more: boolean;
  /** The `seq` of records that belong here and do not read back; absent where all do. */
  damaged?: Array<number>;
}

/** Payload of `pong`. */
export interface Pong {
  /** The newest durable event of the open session; 0 without one. */
  seq: number;
  /** Whether the client has seen it; `false` means reopen with `resume`. */
  inSync: boolean;
  /** The server's time. */
  serverTime: Timestamp;
}

/** Payload of `accepted`. */
export interface Accepted {
  /** The entry that was written; absent while the input waits. */
  entryId?: EntryId;
  /** The turn that was started; absent while the input waits. */
  turnId?: TurnId;
  /** Whether the input waits for its turn. */
  queued: boolean;
  /** This reply speaks of everything up to this durable event; what the command caused follows above it. */
  asOfSeq: number;
  /** The command had been taken before; this is its first answer. */
  duplicate?: boolean;
}

/** Payload of `ok`. */
export interface Done {
  /** The compaction that was started. */
  jobId?: JobId;
  /** The entry that was written, or will be before the next request. */
  entryId?: EntryId;
  /** This reply speaks of everything up to this durable event; what the command caused follows above it. */
  asOfSeq?: number;
  /** The command had been taken before; this is its first answer. */
  duplicate?: boolean;
}

/** Payload of `context`. */
export interface Context {
  /** What the next request would send. */
  envelope?: ContextEnvelope;
  /** The same as text to read. */
  markdown?: string;
  /** Its tokens. */
  tokens: number;
  /** What it would share with the session's request before it. */
  receipt?: Receipt;
}

/** Payload of `compaction_preview`: what `manual_compact { previewId }` would do. */
export interface CompactionPreview {
  /** Names it to `manual_compact`. */
  previewId: JobId;
  /** Until when it can be applied. */
  expiresAt: Timestamp;
  /** The summary; empty where nothing would be summarised. */
  summary: string;
  /** Its form; absent where none would be made, and where a hook made it. */
  form?: SummaryForm;
  /** Which way of making room it takes. */
  rung: CompactionRung;
  /** The gentler ways that were tried before, and why they did not do. */
  failedRungs?: Array<FailedRung>;
  /** The first entry that would be kept; absent where none would. */
  cutEntryId?: EntryId;
  /** Older entries that would be kept word for word. */
  keptEntryIds: Array<EntryId>;
  /** Entries whose tool results would be shown as a short note. */
  clearedEntryIds?: Array<EntryId>;
  /** What the model would not see any more. */
  dropped: Stretch;
  /** What it would still see, the summary left out. */
  kept: Stretch;
  /** Tokens of the next request now. */
  oldTokenCount: number;
  /** Tokens of the same request then. */
  newTokenCount: number;
  /** What of the summary was looked after. */
  retained?: Retained;
  /** What making the summary has cost; absent where the model was not asked. */
  cost?: Usage;
}

/** Some messages of a context. */
export interface Stretch {
  /** How many messages. */
  count: number;
  /** Their tokens. */
  tokens: number;
  /** The first one's entry. */
  from?: EntryId;
  /** The last one's. */
  to?: EntryId;
}

/** Payload of `navigated`. */
export interface Navigated {
  /** The entry from which the session goes on; `null` before the first. */
  leafId: EntryId | null;
  /** The input to be edited, of a move to before it. */
  input?: Array<Part>;
  /** The summary of the branch that was left. */
  branchSummaryEntryId?: EntryId;
  /** This reply speaks of everything up to this durable event; what the command caused follows above it. */
  asOfSeq: number;
  /** The command had been taken before; this is its first answer. */
  duplicate?: boolean;
}

/** Payload of `forked`. */
export interface Forked {
  /** The new session; open it as any other. */
  sessionId: SessionId;
  /** The input to be edited, of a fork before it. */
  input?: Array<Part>;
  /** The command had been taken before; this is its first answer. */
  duplicate?: boolean;
}

/** Payload of `tree`. */
export interface Tree {
  /** The entries, parents before their children. */
  nodes: Array<TreeNode>;
  /** The entry from which the session goes on; `null` before the first. */
  leafId: EntryId | null;
  /** This reply speaks of everything up to this durable event. */
  asOfSeq: number;
  /** Whether entries were left out: those below nodes whose `childCount` is larger than their children here. */
  more: boolean;
}

/** An entry as the tree shows it. */
export interface TreeNode {
  /** The entry. */
  entryId: EntryId;
  /** The entry it hangs from; `null` for a root. */
  parentId: EntryId | null;
  /** Its type; a message's has its role behind it, `message:user`. */
  type: string;
  /** The beginning of what it says, one line of at most 80 characters. */
  preview: string;
  /** Its name. */
  label?: string;
  /** When it was made. */
  timestamp: Timestamp;
  /** How many entries hang from it. */
  childCount: number;
}
