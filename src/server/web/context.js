/**
 * Actions on what the model sees of the displayed session: compact, preview, undo, pin messages, choose the compaction
 * strategy.
 *
 * A method whose refusal belongs to a form throws it; every other method shows it as a notice.
 *
 * @typedef {import("reseed-protocol").CompactionPreview} CompactionPreview
 * @typedef {import("reseed-protocol").PreviewCompaction} Wishes How to compact this time.
 */

import { CommandError } from "./client.js";
import { isHeldUp } from "./snapshot.js";

export class Context {
  /** @param {import("./app.js").App} app */
  constructor(app) {
    this.app = app;
  }

  get session() {
    return this.app.theSession;
  }

  /** Returns true if the user may compact now. A background compaction gives way to it. */
  get mayCompact() {
    const { snapshot, readOnly } = this.app;
    return snapshot !== null && !readOnly && !isHeldUp(snapshot);
  }

  /** @param {Wishes} [wishes] */
  async compact(wishes = {}) {
    await this.app.quietly(this.order(wishes));
  }

  /**
   * Starts a compaction; its outcome arrives as an event.
   * @param {import("reseed-protocol").StartCompaction} wishes
   */
  order(wishes) {
    return this.session.startCompaction(wishes);
  }

  /**
   * Runs a compaction without applying it, and fetches what the model sees now for comparison.
   * @param {Wishes} wishes
   */
  async preview(wishes) {
    const { session } = this;
    const preview = await session.previewCompaction(wishes);
    // The preview is still useful without the comparison.
    const now = await session.getContext({ format: "envelope" }).catch(() => null);
    return { preview, messages: now?.envelope?.messages.cached ?? null };
  }

  /** @param {string} [jobId] absent: the running one */
  async cancel(jobId) {
    try {
      await this.session.cancelCompaction(jobId);
    } catch (error) {
      // It ended before it could be cancelled.
      if (!(error instanceof CommandError && error.code === "no_compaction")) this.app.fail(error);
    }
  }

  /** @param {string} [entryId] absent: the one in effect */
  async undo(entryId) {
    await this.app.quietly(this.session.undoCompaction(entryId));
  }

  /**
   * @param {string} entryId
   * @param {boolean} keep true: every compaction must keep it; false: it is unpinned
   */
  async pin(entryId, keep) {
    await this.app.quietly(keep ? this.session.pin(entryId) : this.session.unpin(entryId));
  }

  /**
   * @param {string} strategy
   * @param {import("reseed-protocol").StrategySettings} [settings] absent: the deployment's settings
   */
  async setStrategy(strategy, settings) {
    return (await this.app.madeSession()).setStrategy(strategy, settings);
  }

  /**
   * Returns what the next request would send.
   * @param {"envelope" | "markdown"} format
   * @param {boolean} ephemeral whether to include what hooks last added for a single request
   */
  nextRequest(format, ephemeral) {
    return this.session.getContext(ephemeral ? { format, ephemeral } : { format });
  }

  /** Requests how full the window is. */
  async refresh() {
    await this.app.quietly(this.session.getContextInfo());
  }
}
