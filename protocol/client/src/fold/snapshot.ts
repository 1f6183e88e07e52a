/**
 * The state of a session as one immutable value: the fold of its events.
 *
 * Snapshots are never changed. What an event does not touch is the same object in the next snapshot, so that
 * comparing by identity shows what has changed.
 */

import type {
  Approval,
  CompactionPrepared,
  ContextInfo,
  EndedTurn,
  EntryId,
  FailedCompaction,
  Host,
  JobId,
  Participant,
  PendingCall,
  Pin,
  LeafId,
  QueueItem,
  RequestDelayed,
  SessionId,
  SessionRole,
  RunningPart,
  SessionSettings,
  SessionState,
  StandingApproval,
  TurnId,
  UnansweredTurn,
} from "../wire.js";
import type { KnownEntries, Path } from "./entries.js";

/** A session at one moment. */
export interface SessionSnapshot {
  /** The session. */
  readonly sessionId: SessionId;
  /** The role of this connection. */
  readonly role: SessionRole;
  /** Names the log that `seq` is a place in. */
  readonly epoch: string;
  /** The last durable event that is in this snapshot. */
  readonly seq: number;
  /** The activity of the session. */
  readonly state: SessionState;
  /** The session's name; empty if it has none. */
  readonly name: string;
  /** The model. */
  readonly model: string;
  /** The context strategy's short name. */
  readonly strategy: string;
  /** The other settings. */
  readonly settings: SessionSettings;
  /** The number of times that the agent loop was seeded. */
  readonly generation: number;
  /** The size of the context. */
  readonly contextInfo: ContextInfo;
  /** A warning about the window, for people; `null` if there is none. */
  readonly warning: string | null;
  /** Every entry that was seen, on whatever branch. */
  readonly entries: KnownEntries;
  /** The path to the leaf: what to show. */
  readonly path: Path;
  /** The place that the session continues from. */
  readonly leafId: LeafId;
  /** The running turn; `null` if there is none. */
  readonly turn: Turn | null;
  /** The wait before the turn's request is sent to the model server again, until the answer starts; `null` if none. */
  readonly delayed: RequestDelayed | null;
  /** Answers that are being written, and void ones until the next turn begins. */
  readonly items: readonly Item[];
  /** The last turn, if it ended without an answer and nothing was said since: what `retryTurn` would retry. */
  readonly lastTurn: EndedTurn | null;
  /** The newest turns that ended without an answer, oldest first, each with its place in the history. */
  readonly unansweredTurns: readonly UnansweredTurn[];
  /** The newest compactions that failed while somebody waited, oldest first. */
  readonly failedCompactions: readonly FailedCompaction[];
  /** The running compaction, or the summary of an abandoned branch that is being written; `null` if there is none. */
  readonly compaction: CompactionJob | null;
  /** The compaction that was prepared and waits until it is due. */
  readonly held: CompactionPrepared | null;
  /** The compactions that were undone. */
  readonly undone: readonly EntryId[];
  /** The entries that every compaction keeps verbatim. */
  readonly pins: readonly Pin[];
  /** Inputs that wait for their turn, first in line first. */
  readonly queue: readonly QueueItem[];
  /** Tool calls without a result. */
  readonly pending: readonly Call[];
  /** Tool calls that a person must allow first. */
  readonly approvals: readonly Approval[];
  /** Lasting answers to approvals. */
  readonly standingApprovals: readonly StandingApproval[];
  /** The connection whose tools and hooks are asked; `null` if there is none. */
  readonly host: Host | null;
  /** The connections that are subscribed to the session, in the order in which they came. */
  readonly presence: readonly Participant[];
  /**
   * The newest event that the server has told of: `seq`, unless a replay is under way. Events up to it say nothing
   * against what only `session_opened` told.
   */
  readonly asOfSeq: number;
}

/** A running turn. */
export interface Turn {
  /** The turn. */
  readonly turnId: TurnId;
}

/** An answer that is not an entry yet. */
export interface Item {
  /** The id that its entry will have. */
  readonly itemId: EntryId;
  /** Its turn. */
  readonly turnId: TurnId;
  /** Its parts so far. */
  readonly parts: readonly RunningPart[];
  /** Why it will not become an entry: what was shown of it is not stored. Absent while it may become one. */
  readonly aborted?: string;
  /** The entry behind which it was shown; on aborted items. */
  readonly after?: SessionSnapshot["leafId"];
}

/** A tool call without a result. */
export interface Call extends PendingCall {
  /** The activity that the tool reports. */
  readonly message?: string;
}

/** A running compaction. */
export interface CompactionJob {
  /** The job. */
  readonly jobId: JobId;
  /** Its phase: `starting`, `ordered`, `summarising`, or `summarising_branch` for an abandoned branch. */
  readonly phase: string;
  /** Why it runs; absent if this client was not told. */
  readonly trigger?: string;
  /** True if turns continue meanwhile. */
  readonly background?: boolean;
  /** Steps done. */
  readonly done?: number;
  /** All steps. */
  readonly total?: number;
}

/** The phase of a job that summarises the branch which is left. */
export const SUMMARISING_BRANCH = "summarising_branch";
