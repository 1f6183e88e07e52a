/** The part of the fold about the context window: compactions running, held, completed, undone or failed. */

import type {
  CompactionFailed,
  CompactionPrepared,
  CompactionProgress,
  CompactionStarted,
  CompactionUndone,
  ContextCompacted,
  ContextInfo,
  JobId,
  SessionOpened,
} from "../wire.js";
import { type CompactionJob, type SessionSnapshot, SUMMARISING_BRANCH } from "./snapshot.js";

/** Error codes of compactions that ended without a result but did not fail. */
const NOT_FAILED: ReadonlySet<string> = new Set(["compaction_cancelled", "compaction_void", "nothing_to_compact"]);

/** Maximum remembered failures: as many as the server lists in a snapshot. */
export const FAILURES_MAX = 16;

/** The fields that this file changes. */
type Change = Partial<SessionSnapshot>;

/** Returns the compaction after a resume. What was known of another job does not apply to this one. */
export function resumedCompaction(known: CompactionJob | null, { compaction }: SessionOpened): CompactionJob | null {
  if (!compaction) return null;
  if (known?.jobId !== compaction.jobId) return compaction;
  const { background: _, ...same } = known;
  return { ...same, ...compaction };
}

/** Returns the changes that a new context size causes. */
export function measured(contextInfo: ContextInfo): Change {
  return { contextInfo, warning: contextInfo.warning ?? null };
}

/** Applies `compaction_started`. */
export function compactionStarted(now: SessionSnapshot, { jobId, trigger, background }: CompactionStarted): Change {
  // It may arrive after the durable event that ended the same job.
  if (now.held?.jobId === jobId) return {};
  return { compaction: { jobId, trigger, phase: "starting", ...(background ? { background } : {}) } };
}

/**
 * Applies `compaction_progress`. Progress of an unannounced job belongs to a preview: the session itself is not being
 * compacted. Only a branch summary starts with its first progress event.
 */
export function compactionProgressed(now: SessionSnapshot, progress: CompactionProgress): Change {
  if (now.compaction?.jobId === progress.jobId) return { compaction: { ...now.compaction, ...progress } };
  return progress.phase === SUMMARISING_BRANCH ? { compaction: progress } : {};
}

/** Applies `compaction_prepared`: the compaction was made ahead of time, and the server holds it until it is due. */
export function compactionPrepared(now: SessionSnapshot, prepared: CompactionPrepared): Change {
  return { compaction: withoutJob(now, prepared.jobId), held: prepared };
}

/** Applies `context_compacted`. */
export function compacted(now: SessionSnapshot, report: ContextCompacted): Change {
  const { jobId, entryId, tokensAfter, generation, breakdown } = report;
  const { warning: _, ...size } = now.contextInfo;
  return {
    compaction: withoutJob(now, jobId),
    // A committed compaction always ends the held one: it was either made from it, in which case no other event reports
    // its end, or it invalidated it. A replayed compaction is older than the one held now.
    held: isReplayed(now) ? heldWithout(now, jobId) : null,
    generation,
    ...measured({
      ...size,
      tokenCount: tokensAfter,
      usageRatio: tokensAfter / Math.max(1, size.maxTokens),
      breakdown: breakdown.after,
      leafId: entryId,
      generation,
      compactions: size.compactions + 1,
    }),
  };
}

/** Applies `compaction_undone`. */
export function compactionUndone(now: SessionSnapshot, undone: CompactionUndone): Change {
  return { undone: [...now.undone, undone.entryId], generation: undone.generation, ...measured(undone.contextInfo) };
}

/** Applies `compaction_failed`. Compactions that were cancelled or became pointless are not failures. */
export function compactionFailed(now: SessionSnapshot, failed: CompactionFailed): Change {
  const { jobId, trigger, error, background } = failed;
  const ended = { compaction: withoutJob(now, jobId), held: heldWithout(now, jobId) };
  // A job without a trigger is a branch summary: the reply to the move reports its failure to the caller.
  if (background || !trigger || NOT_FAILED.has(error.code)) return ended;
  const failure = { jobId, error, leafId: now.leafId };
  return { ...ended, failedCompactions: [...now.failedCompactions, failure].slice(-FAILURES_MAX) };
}

/** Returns true if the last `session_opened` already reflects the next durable event after this snapshot. */
export function isReplayed({ seq, asOfSeq }: SessionSnapshot): boolean {
  return seq < asOfSeq;
}

/** Returns the running compaction unless it is this job. A replay may report an earlier job than the running one. */
function withoutJob({ compaction }: SessionSnapshot, jobId: JobId): CompactionJob | null {
  return compaction?.jobId === jobId ? null : compaction;
}

/** Returns the held compaction unless it is this job, which was committed or dropped. */
function heldWithout({ held }: SessionSnapshot, jobId: JobId): CompactionPrepared | null {
  return held?.jobId === jobId ? null : held;
}
