/**
 * The part of the fold that is about what the model sees: compactions at work, made and undone, pins, how full the
 * window is. What `fold.js` promises holds here too.
 *
 * @typedef {import("./fold.js").State} State
 * @typedef {import("./fold.js").RunningCompaction} RunningCompaction
 * @typedef {import("reseed-protocol").ContextCompacted} ContextCompacted
 */

/** The phase of a job that summarises the branch which is left. */
export const SUMMARISING_BRANCH = "summarising_branch";

/**
 * What a snapshot says of it.
 * @param {import("reseed-protocol").SessionOpened} opened
 */
export function contextOf(opened) {
  return {
    contextInfo: opened.contextInfo,
    warning: opened.contextInfo.warning ?? null,
    compaction: opened.compaction ?? null,
    held: opened.held ?? null,
    pins: opened.pins ?? [],
    undone: opened.undone ?? [],
    reports: new Map(),
  };
}

/**
 * The compaction at work after a resume: what was known of another one says nothing of it.
 * @param {RunningCompaction | null} known
 * @param {import("reseed-protocol").SessionOpened} opened
 * @returns {RunningCompaction | null}
 */
export function resumedCompaction(known, { compaction, asOfSeq }) {
  if (!compaction) return null;
  const { background, ...same } = known?.jobId === compaction.jobId ? known : {};
  return { ...same, ...compaction, asOfSeq };
}

/**
 * Whether a compaction is at work that turns wait for; one in the background is nobody's business.
 * @param {Pick<State, "compaction">} state
 */
export function isHeldUp({ compaction }) {
  return compaction !== null && !compaction.background;
}

/**
 * The compaction whose summary the model sees, as far as the path is known; null where there is none.
 * @param {Pick<State, "entries" | "undone">} state
 */
export function inEffect({ entries, undone }) {
  const found = entries.findLast((entry) => entry.type === "compaction" && !undone.includes(entry.entryId));
  return found?.type === "compaction" ? found : null;
}

/**
 * The pin of an entry; null where it has none.
 * @param {Pick<State, "pins">} state
 * @param {string} entryId
 */
export function pinOf({ pins }, entryId) {
  return pins.find((pin) => pin.entryId === entryId) ?? null;
}

/**
 * @param {State} state
 * @param {import("reseed-protocol").CompactionStarted} started
 * @returns {State}
 */
export function compactionStarted(state, { jobId, trigger, background }) {
  return { ...state, compaction: { jobId, trigger, phase: "starting", ...(background ? { background } : {}) } };
}

/**
 * Steps of a job that nobody has announced are a preview's: the session is not being compacted. Only the summary of a
 * branch begins with its first step.
 * @param {State} state
 * @param {import("reseed-protocol").CompactionProgress} progress
 * @returns {State}
 */
export function compactionProgressed(state, progress) {
  const isAside = progress.phase !== SUMMARISING_BRANCH && state.compaction?.jobId !== progress.jobId;
  return isAside ? state : { ...state, compaction: { ...state.compaction, ...progress } };
}

/**
 * The running compaction, unless it is this one. A replay may tell the end of one while the next is running already.
 * @param {State} state
 * @param {string} jobId
 */
export function withoutJob(state, jobId) {
  return state.compaction?.jobId === jobId ? null : state.compaction;
}

/**
 * A compaction was made ahead of time: the server holds it until it is due.
 * @param {State} state
 * @param {import("reseed-protocol").CompactionPrepared} prepared
 * @returns {State}
 */
export function compactionPrepared(state, prepared) {
  return { ...state, compaction: withoutJob(state, prepared.jobId), held: prepared };
}

/**
 * The compaction that is held, unless it is this one: it was committed, or dropped.
 * @param {State} state
 * @param {string} jobId
 */
export function heldWithout({ held }, jobId) {
  return held?.jobId === jobId ? null : held;
}

/**
 * @param {State} state
 * @param {ContextCompacted} report
 * @returns {State}
 */
export function compacted(state, report) {
  const { jobId, entryId, tokensAfter, generation, breakdown } = report;
  const usageRatio = tokensAfter / Math.max(1, state.contextInfo.maxTokens);
  const contextInfo = {
    ...state.contextInfo,
    tokenCount: tokensAfter,
    usageRatio,
    breakdown: breakdown.after,
    leafId: entryId,
    generation,
    compactions: state.contextInfo.compactions + 1,
    warning: undefined,
  };
  const reports = new Map(state.reports).set(entryId, report);
  return { ...state, compaction: withoutJob(state, jobId), held: heldWithout(state, jobId), warning: null, generation, contextInfo, reports };
}

/**
 * @param {State} state
 * @param {import("reseed-protocol").CompactionUndone} undone
 * @returns {State}
 */
export function compactionUndone(state, { entryId, generation, contextInfo }) {
  return { ...state, undone: [...state.undone, entryId], generation, contextInfo, warning: contextInfo.warning ?? null };
}
