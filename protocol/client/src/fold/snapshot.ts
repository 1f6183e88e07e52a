/**
 * The state of a session as one immutable value: the fold of its events.
 *
 * Snapshots are never mutated. What an event does not touch is the same object in the next snapshot, so comparing by
 * identity shows what has changed.
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
  /** Identifies the log that `seq` refers to. */
  readonly epoch: string;
  /** The last durable event applied to this snapshot. */
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
  /** How often the agent loop was seeded. */
  readonly generation: number;
  /** The size of the context. */
  readonly contextInfo: ContextInfo;
  /** A warning about the window, for people; `null` if there is none. */
  readonly warning: string | null;
  /** Every entry seen so far, on any branch. */
  readonly entries: KnownEntries;
  /** The path to the leaf: what to show. */
  readonly path: Path;
  /** The place from which the session continues. */
  readonly leafId: LeafId;
  /** The running turn, or `null`. */
  readonly turn: Turn | null;
  /** The delay before the turn's request is sent to the model server again, until the answer starts; `null` if none. */
  readonly delayed: RequestDelayed | null;
  /** Answers in progress, and void ones until the next turn starts. */
  readonly items: readonly Item[];
  /** The last turn, if it ended without an answer and nothing was said since: what `retryTurn` would retry. */
  readonly lastTurn: EndedTurn | null;
  /** The newest turns that ended without an answer, oldest first, each with its place in the history. */
  readonly unansweredTurns: readonly UnansweredTurn[];
  /** The newest compactions that failed while somebody waited, oldest first. */
  readonly failedCompactions: readonly FailedCompaction[];
  /** The running compaction, or the branch summary being written; `null` if there is none. */
  readonly compaction: CompactionJob | null;
  /** The prepared compaction that waits until it is due. */
  readonly held: CompactionPrepared | null;
  /** The compactions that were undone. */
  readonly undone: readonly EntryId[];
  /** The entries that every compaction keeps verbatim. */
  readonly pins: readonly Pin[];
  /** Queued inputs, in the order of their turns. */
  readonly queue: readonly QueueItem[];
  /** Tool calls without a result. */
  readonly pending: readonly Call[];
  /** Tool calls that need a person's approval. */
  readonly approvals: readonly Approval[];
  /** Standing approvals and rejections. */
  readonly standingApprovals: readonly StandingApproval[];
  /** The connection that provides tools and hooks; `null` if there is none. */
  readonly host: Host | null;
  /** The connections subscribed to the session, in order of arrival. */
  readonly presence: readonly Participant[];
  /**
   * The newest event that the server has reported: `seq`, unless a replay is in progress. Events up to it do not
   * override what only `session_opened` reports.
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
  /** Why it will not become an entry: what was shown of it is not stored. Absent while it still may. */
  readonly aborted?: string;
  /** The entry after which it was shown; only on aborted items. */
  readonly after?: SessionSnapshot["leafId"];
}

/** A tool call without a result. */
export interface Call extends PendingCall {
  /** The activity reported by the tool. */
  readonly message?: string;
}

/** A running compaction. */
export interface CompactionJob {
  /** The job. */
  readonly jobId: JobId;
  /** Its phase: `starting`, `ordered`, `summarising`, or `summarising_branch` for an abandoned branch. */
  readonly phase: string;
  /** Why it runs; absent if this client does not know. */
  readonly trigger?: string;
  /** True if turns continue meanwhile. */
  readonly background?: boolean;
  /** Steps done. */
  readonly done?: number;
  /** Total steps. */
  readonly total?: number;
}

/** The phase of a job that summarises the abandoned branch. */
export const SUMMARISING_BRANCH = "summarising_branch";
