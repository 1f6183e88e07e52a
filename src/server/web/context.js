/**
 * What can be done about what the model sees of the session that is shown: compacting it, looking at that first, taking
 * it back, keeping messages, choosing how room is made.
 *
 * What always holds: a method whose refusal belongs to a form throws it; every other one shows it as a notice.
 *
 * @typedef {import("reseed-protocol").CompactionPreview} CompactionPreview
 * @typedef {import("reseed-protocol").PreviewCompaction} Wishes How to compact, this once.
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

  /** Whether a person may compact here now: one in the background gives way. */
  get mayCompact() {
    const { snapshot, readOnly } = this.app;
    return snapshot !== null && !readOnly && !isHeldUp(snapshot);
  }

  /** @param {Wishes} [wishes] */
  async compact(wishes = {}) {
    await this.app.quietly(this.order(wishes));
  }

  /**
   * Orders a compaction; what it comes to is an event.
   * @param {import("reseed-protocol").StartCompaction} wishes
   */
  order(wishes) {
    return this.session.startCompaction(wishes);
  }

  /**
   * Makes a compaction without putting it in place, and gets what the model sees now to compare it with.
   * @param {Wishes} wishes
   */
  async preview(wishes) {
    const { session } = this;
    const preview = await session.previewCompaction(wishes);
    // Without it the rest can still be shown.
    const now = await session.getContext({ format: "envelope" }).catch(() => null);
    return { preview, messages: now?.envelope?.messages.cached ?? null };
  }

  /** @param {string} [jobId] absent for the one at work */
  async cancel(jobId) {
    try {
      await this.session.cancelCompaction(jobId);
    } catch (error) {
      // It was over before it could be stopped.
      if (!(error instanceof CommandError && error.code === "no_compaction")) this.app.fail(error);
    }
  }

  /** @param {string} [entryId] absent for the one in effect */
  async undo(entryId) {
    await this.app.quietly(this.session.undoCompaction(entryId));
  }

  /**
   * @param {string} entryId
   * @param {boolean} keep whether every compaction should keep it, or no longer
   */
  async pin(entryId, keep) {
    await this.app.quietly(keep ? this.session.pin(entryId) : this.session.unpin(entryId));
  }

  /**
   * @param {string} strategy
   * @param {import("reseed-protocol").StrategySettings} [settings] absent for the deployment's
   */
  async setStrategy(strategy, settings) {
    return (await this.app.madeSession()).setStrategy(strategy, settings);
  }

  /**
   * What the next request would send.
   * @param {"envelope" | "markdown"} format
   * @param {boolean} ephemeral whether with what hooks last added for one request alone
   */
  nextRequest(format, ephemeral) {
    return this.session.getContext(ephemeral ? { format, ephemeral } : { format });
  }

  /** Asks how full the window is. */
  async refresh() {
    await this.app.quietly(this.session.getContextInfo());
  }
}
