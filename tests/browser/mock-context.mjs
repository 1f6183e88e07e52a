/**
 * The mock server's commands about the context, one method each, as in `mock.mjs`. Words in its instructions decide the
 * outcome of a compaction: `clear` clears tool results, `extract` first fails at the gentler steps, `refuse` fails
 * completely, `soon` makes a preview that expires while it is shown.
 */

import { STRATEGIES } from "../../src/server/web/offered-strategies.js";

/** The `welcome` features that cover these commands. */
export const CONTEXT_FEATURES = ["strategies", "preview", "undo", "pins"];

const SUMMARY = "## Goal\nTalk with the mock.\n\n## Progress\n- Several messages were exchanged.\n\n## Critical Context\nThe code word is `plover`.";

/** Returns how a compaction goes, by its instructions. */
function courseOf(instructions = "") {
  const usage = { inputTokens: 900, cachedTokens: 0, outputTokens: 120, source: "reported" };
  if (/\bclear\b/.test(instructions)) return { rung: "clear_tool_results" };
  if (/\bextract\b/.test(instructions)) {
    return { rung: "extract", failedRungs: [{ rung: "model_summary", reason: "truncated" }, { rung: "chunked_summary", reason: "empty" }], summaryUsage: usage };
  }
  return { rung: "model_summary", summaryUsage: usage };
}

function markdownOf({ system, messages, meta }) {
  const parts = system.parts.map(({ name, text }, index) => `# system: ${name} (${meta.parts.system[index]} tokens)\n\n${text}\n`);
  const said = [...messages.cached, ...messages.uncached].map(({ message }) => `# ${message.role}\n\n${message.content.map((part) => part.text ?? part.output ?? part.arguments).join("\n")}\n`);
  return [...parts, ...said].join("\n");
}

export const contextCommands = {
  on_get_context_info({ world, reply }) {
    reply("context_info", world.contextInfo());
  },

  on_get_context({ payload, world, reply, refuse }) {
    const envelope = world.envelope(payload);
    const { tokens } = envelope.meta;
    this.looks += 1;
    if (payload.format === "markdown") return reply("context", { markdown: markdownOf(envelope), tokens });
    if (this.hidesContext) return refuse("invalid_field", "the context is too large to be sent");
    reply("context", { envelope, tokens });
  },

  on_start_compaction({ id, payload, world, reply, refuse }) {
    if (world.heldUp) return refuse("compaction_running", "the session is being compacted", true);
    const { previewId, instructions } = payload;
    if (previewId) return this.applyPreview({ id, previewId, world, reply, refuse });
    if (world.entries.length < 4) return refuse("nothing_to_compact", "what could be compacted is too little to gain anything");
    world.voidRunning();
    const { jobId } = world.startCompaction("manual");
    reply("ok", { jobId, asOfSeq: world.seq });
    void this.compact(world, id, instructions);
  },

  on_preview_compaction({ payload, world, reply, refuse }) {
    if (world.heldUp) return refuse("compaction_running", "the session is being compacted", true);
    if (world.entries.length < 4) return refuse("nothing_to_compact", "what could be compacted is too little to gain anything");
    world.voidRunning();
    void this.makePreview(world, payload, reply, refuse);
  },

  async makePreview(world, { instructions, strategy, rebuild }, reply, refuse) {
    const jobId = world.id("j");
    world.previewing = jobId;
    for (let done = 0; done < 3; done += 1) {
      world.progress(done, 3, jobId);
      if (await this.step(jobId)) {
        world.previewing = null;
        return refuse("compaction_cancelled", "the compaction was cancelled; the context is unchanged");
      }
    }
    world.previewing = null;
    if (/\brefuse\b/.test(instructions ?? "")) return refuse("upstream_error", "the model's server did not answer");
    const { rung, failedRungs, summaryUsage } = courseOf(instructions);
    const asked = [instructions, strategy, rebuild && "anew"].filter(Boolean).join(", ");
    const outcome = world.outcome(`${SUMMARY}\n\nAsked for: ${asked || "nothing"}. <img src=x onerror="window.hacked = 1">`, rung);
    const expiresAt = new Date(Date.now() + (/\bsoon\b/.test(instructions ?? "") ? 1500 : 600_000));
    world.preview = { jobId, outcome, expiresAt, base: world.inEffect()?.entryId, last: world.leafId };
    reply("compaction_preview", {
      previewId: jobId, expiresAt: expiresAt.toISOString(), ...world.shown(outcome),
      ...(failedRungs ? { failedRungs } : {}), ...(summaryUsage ? { summaryUsage } : {}),
    });
  },

  applyPreview({ id, previewId, world, reply, refuse }) {
    const { preview } = world;
    if (preview?.jobId !== previewId || preview.expiresAt <= new Date()) return refuse("preview_not_found", `there is no preview \`${previewId}\`, or it has expired`);
    world.preview = null;
    const stands = world.inEffect()?.entryId === preview.base && (preview.last === null || world.path().some((entry) => entry.entryId === preview.last));
    if (!stands) return refuse("history_moved", "the history moved on since the preview: what it shows is no longer what the model sees");
    world.voidRunning();
    reply("ok", { jobId: previewId, asOfSeq: world.seq });
    world.commit({ jobId: previewId, trigger: "manual", outcome: preview.outcome, commandId: id });
  },

  on_cancel_compaction({ payload, world, reply, refuse }) {
    const running = world.compaction?.jobId ?? world.previewing;
    if (!running) return refuse("no_compaction", "no compaction is running");
    if (payload.jobId && payload.jobId !== running) return refuse("no_compaction", `compaction \`${payload.jobId}\` is not running, \`${running}\` is`);
    reply("ok", { asOfSeq: world.seq });
    this.cancels.get(world.leaving ? world : running)?.();
  },

  on_undo_compaction({ id, payload, world, reply, refuse }) {
    if (world.busy) return refuse("turn_running", "a compaction can be undone only when the session is idle");
    const found = world.inEffect();
    if (!found) return refuse("nothing_to_undo", "no compaction is in effect on this branch");
    if (payload.entryId && payload.entryId !== found.entryId) return refuse("nothing_to_undo", `\`${payload.entryId}\` is not the compaction in effect on this branch`);
    reply("ok", { asOfSeq: world.seq });
    world.undo(id);
  },

  on_pin_entry({ payload, world, reply, refuse }) {
    if (!world.mayPin(payload.entryId)) return refuse("invalid_field", "there is nothing to keep");
    if (world.pins.length >= this.pinsMax) return refuse("too_many_pins", `${this.pinsMax} entries may be pinned`);
    reply("ok", { asOfSeq: world.seq });
    world.pin(payload.entryId);
  },

  on_unpin_entry({ payload, world, reply, refuse }) {
    if (!world.pins.some((pin) => pin.entryId === payload.entryId)) return refuse("entry_not_found", "that entry is not pinned");
    reply("ok", { asOfSeq: world.seq });
    world.unpin(payload.entryId);
  },

  on_set_context_strategy({ payload, world, reply, refuse }) {
    if (!STRATEGIES.some(({ name }) => name === payload.strategy)) return refuse("unknown_strategy", `there is no strategy \`${payload.strategy}\``);
    const { target, threshold = 0.8 } = payload.settings ?? {};
    if (target !== undefined && target >= threshold) return refuse("invalid_field", `the target is above 0 and below the threshold of ${threshold}, not ${target}`, false, { field: "settings.target" });
    world.voidRunning();
    reply("ok", { asOfSeq: world.seq });
    world.update({ strategy: payload.strategy, settings: payload.settings ? { strategySettings: payload.settings } : {} });
  },

  /** Runs a compaction to its end. */
  async compact(world, commandId, instructions) {
    const job = world.compaction;
    for (let done = 0; done < 3; done += 1) {
      const cancelled = await this.step(job.jobId);
      // It was invalidated meanwhile, which has already been reported.
      if (world.compaction !== job) return;
      if (cancelled) return world.failCompaction("compaction_cancelled", "the compaction was cancelled; the context is unchanged");
      world.progress(done + 1, 3);
    }
    if (/\brefuse\b/.test(instructions ?? "")) return world.failCompaction("upstream_error", "the model's server did not answer", commandId);
    // A background compaction is applied between two requests.
    while (job.background && world.turn) {
      await this.pause(job.jobId, 5);
      if (world.compaction !== job) return;
    }
    const { summaryUsage, ...course } = courseOf(instructions);
    world.commitCompaction(SUMMARY, commandId, { ...course, ...(summaryUsage ? { summaryUsage } : {}) });
    if (!world.turn && world.queue.length > 0) void this.turn(world, [world.dequeue().commandId]);
  },

  /** Prepares a compaction after a turn if the window is nearly full. */
  prepare(world) {
    const { tokenCount, prepareAtTokens } = world.contextInfo();
    if (prepareAtTokens === undefined || tokenCount <= prepareAtTokens || world.compaction || world.breaker) return;
    world.startCompaction("threshold", true);
    void this.compact(world);
  },
};
