/**
 * What the model sees of a `World`, by the server's rules: compactions run, prepared and undone, pins, cleared tool
 * results. Every method here is one of `World`.
 */

const ZERO = { system: 0, tools: 0, summary: 0, user: 0, assistant: 0, reasoning: 0, toolResults: 0, images: 0, uncached: 0 };

export const CLEARED = "[This old tool result was cut to save room; call the tool again if more of it is needed.]";
const cleared = (output) => `${CLEARED}\n${[...output.trimStart()].slice(0, 160).join("")}…`;

/** Estimates the tokens of a text. The page only shows the server's numbers. */
export const tokens = (text = "") => Math.ceil(text.length / 4);

const tokensOf = (content) => content.reduce((sum, part) => sum + tokens(part.text ?? part.output ?? part.arguments), 0);

const calls = (entry) => (entry.content ?? []).flatMap((part) => (part.type === "tool_call" ? [part.toolCallId] : []));
const results = (entry) => (entry.content ?? []).flatMap((part) => (part.type === "tool_result" ? [part.toolCallId] : []));

export const contextRules = {
  /** Returns the newest compaction on the path that was not undone. */
  inEffect(path = this.path()) {
    return path.findLast((entry) => entry.type === "compaction" && !this.undone.includes(entry.entryId));
  },

  /** Returns what the model sees: the summary, individually kept messages, the tail, and what was said since. */
  messages() {
    const path = this.path();
    const summary = this.inEffect(path);
    const at = path.indexOf(summary);
    const found = summary ? path.findIndex((entry) => entry.entryId === summary.firstKeptEntryId) : 0;
    const first = found >= 0 && (at < 0 || found < at) ? found : at;
    const pinned = (entry) => this.pins.some((pin) => pin.entryId === entry.entryId);
    const kept = summary
      ? [...path.slice(0, first).filter((entry) => pinned(entry) || (summary.keptEntryIds ?? []).includes(entry.entryId)), ...path.slice(first, at), ...path.slice(at + 1)]
      : path;
    const said = kept.filter((entry) => ["message", "custom_message", "branch_summary"].includes(entry.type));
    const seen = [...(summary && summary.summary ? [summary] : []), ...said];
    return seen.map((entry) => {
      if (entry.summary !== undefined) return { entryId: entry.entryId, kind: "summary", message: { role: "user", content: [{ type: "text", text: entry.summary }] } };
      const isCleared = (summary?.clearedEntryIds ?? []).includes(entry.entryId);
      const content = entry.content.map((part) => (isCleared && part.type === "tool_result" ? { ...part, output: cleared(part.output) } : part));
      return { entryId: entry.entryId, kind: "said", message: { role: entry.role ?? "user", content } };
    });
  },

  /** Returns the system prompt's parts, as set by the transforms on the path. */
  systemParts() {
    const parts = new Map([["base", "You are a mock."]]);
    for (const { type, patch } of this.path()) {
      if (type !== "context_transform") continue;
      for (const op of patch ?? []) if (op.op === "system_part_set") parts.set(op.partName, op.text);
    }
    return [...parts].map(([name, text]) => ({ name, text }));
  },

  /** Returns what the next request sends; optionally with what hooks added for the last one only. */
  envelope({ ephemeral = false } = {}) {
    const parts = this.systemParts();
    const cached = this.messages().map(({ entryId, message }) => ({ entryId, message }));
    const last = ephemeral ? this.path().findLast((entry) => entry.type === "ephemeral") : null;
    const uncached = (last?.patch ?? []).flatMap((op) => op.messages ?? []).map((message) => ({ message }));
    const counts = {
      system: parts.map(({ text }) => tokens(text)), tools: this.tools.map((tool) => tokens(JSON.stringify(tool))),
      cached: cached.map(({ message }) => tokensOf(message.content)), uncached: uncached.map(({ message }) => tokensOf(message.content)),
    };
    const sum = (numbers) => numbers.reduce((total, count) => total + count, 0);
    const all = this.contextInfo().tokenCount + sum(counts.uncached);
    const answers = this.path().slice(this.path().findLastIndex((entry) => entry.role === "user")).filter((entry) => entry.role === "assistant").length;
    return {
      system: { parts, compiled: parts.map(({ text }) => text).join("") }, tools: this.tools, messages: { cached, uncached },
      options: this.options,
      meta: {
        model: this.model, windowTokens: this.windowTokens, ...(this.turn ? { turnId: this.turn.turnId } : {}), request: this.turn ? answers + 1 : 1,
        tokens: all, parts: { frame: all - sum(Object.values(counts).flat()), ...counts },
      },
    };
  },

  contextInfo() {
    const breakdown = { ...ZERO, system: 60 + this.systemParts().slice(1).reduce((sum, { text }) => sum + tokens(text), 0), tools: this.tools.reduce((sum, tool) => sum + tokens(JSON.stringify(tool)), 0) };
    const messages = this.messages();
    for (const { kind, message } of messages) {
      for (const part of message.content) {
        if (kind === "summary") breakdown.summary += tokens(part.text);
        else if (part.type === "tool_result") breakdown.toolResults += tokens(part.output);
        else breakdown[message.role === "assistant" ? "assistant" : "user"] += tokens(part.text ?? part.arguments);
      }
    }
    const tokenCount = Object.values(breakdown).reduce((sum, count) => sum + count, 0);
    const usageRatio = tokenCount / this.windowTokens;
    const never = this.strategy === "manual";
    const compactAtTokens = Math.floor(this.windowTokens * (this.settings.strategySettings?.threshold ?? 0.8));
    const prepareAtTokens = Math.floor(compactAtTokens * this.background);
    return {
      tokenCount, transcriptLength: messages.length,
      maxTokens: this.windowTokens, strategy: this.strategy,
      ...(never && usageRatio >= 0.9 ? { warning: "The window is nearly full, and this strategy never compacts by itself." } : {}),
      usageRatio, source: "mixed", usageTokens: tokenCount, trailingTokens: 0, errorBoundTokens: Math.ceil(tokenCount / 20),
      reservedTokens: 512, ...(never ? {} : { compactAtTokens, compactAtRule: "threshold" }),
      ...(never || this.background >= 1 ? {} : { prepareAtTokens }),
      cachedTokens: 0, generation: this.generation, compactions: this.compactions, sessionId: this.sessionId,
      leafId: this.leafId ?? "root", ...(this.breaker ? { breaker: this.breaker } : {}), breakdown,
    };
  },

  // Compactions

  startCompaction(trigger, background = false) {
    this.compaction = { jobId: this.id("j"), phase: "summarising", trigger, ...(background ? { background } : {}) };
    this.ephemeral("compaction_started", { jobId: this.compaction.jobId, trigger, background });
    return this.compaction;
  },

  /** Reports the progress of a job; a preview's job was never announced. */
  progress(done, total, jobId = this.compaction.jobId) {
    this.ephemeral("compaction_progress", { jobId, phase: "summarising", done, total });
  },

  failCompaction(code, message, commandId) {
    const { jobId, trigger, background } = this.compaction;
    this.compaction = null;
    const about = { ...(commandId ? { commandId } : {}), ...(trigger ? { trigger } : {}), ...(background ? { background } : {}) };
    const error = { code, message, retriable: false };
    const ended = ["compaction_cancelled", "compaction_void", "nothing_to_compact"].includes(code);
    if (trigger && !background && !ended) this.failed = [...this.failed, { jobId, error, leafId: this.leafId ?? "root" }].slice(-16);
    this.durable("compaction_failed", { jobId, ...about, durationMs: 40, pausedMs: 0, error });
  },

  /** Invalidates a background compaction: what it has read is no longer what the model sees. */
  voidRunning() {
    if (this.compaction?.background) this.failCompaction("compaction_void", "what the compaction had read is no longer what the model sees");
  },

  /** Returns true if a job is running that turns wait for. */
  get heldUp() {
    return this.compaction !== null && !this.compaction.background;
  },

  get busy() {
    return this.turn !== null || this.heldUp || this.queue.length > 0;
  },

  /** Returns the compaction of the current path: it removes everything before the last question, except pins. */
  outcome(summary, rung = "model_summary") {
    const path = this.path();
    const seen = this.messages().filter(({ kind }) => kind === "said").map(({ entryId }) => this.tree.get(entryId));
    const earlier = this.inEffect(path);
    if (rung === "clear_tool_results") {
      const cleared = seen.slice(0, -1).filter((entry) => entry.role === "tool").map((entry) => entry.entryId);
      return { summary: earlier?.summary ?? "", rung, firstKeptEntryId: earlier?.firstKeptEntryId ?? seen[0]?.entryId, keptEntryIds: earlier?.keptEntryIds ?? [], clearedEntryIds: cleared };
    }
    const first = path.findLast((entry) => entry.type === "message" && entry.role === "user");
    const before = path.slice(0, path.indexOf(first));
    const keptEntryIds = before.filter((entry) => this.pins.some((pin) => pin.entryId === entry.entryId)).map((entry) => entry.entryId);
    return { summary, rung, firstKeptEntryId: first?.entryId, keptEntryIds, clearedEntryIds: [] };
  },

  commitCompaction(summary, commandId, more = {}) {
    const { jobId, trigger, background } = this.compaction;
    this.compaction = null;
    return this.commit({ jobId, trigger, background, outcome: this.outcome(summary, more.rung), commandId, more });
  },

  commit({ jobId, trigger, background, outcome, commandId, more = {} }) {
    const before = this.contextInfo();
    this.generation += 1;
    this.compactions += 1;
    this.breaker = null;
    const { summary, rung, firstKeptEntryId, keptEntryIds, clearedEntryIds } = outcome;
    const lists = { ...(keptEntryIds.length > 0 ? { keptEntryIds } : {}), ...(clearedEntryIds.length > 0 ? { clearedEntryIds } : {}) };
    const data = { type: "compaction", summary, firstKeptEntryId, ...lists, tokensBefore: before.tokenCount, trigger, durationMs: 420 };
    let after = before;
    const entry = this.append(data, {}, (appended) => {
      after = this.contextInfo();
      appended.tokensAfter = after.tokenCount;
    });
    this.durable("context_compacted", {
      tokensBefore: before.tokenCount, tokensAfter: after.tokenCount,
      reductionPercent: Math.max(0, (1 - after.tokenCount / before.tokenCount) * 100), strategy: this.strategy, jobId,
      ...(commandId ? { commandId } : {}), entryId: entry.entryId, ...lists, keptEntryIds, trigger, ...(background ? { background } : {}), summary,
      generation: this.generation, durationMs: 420, pausedMs: background ? 0 : 420, cachedTokensLost: 0,
      breakdown: { before: before.breakdown, after: after.breakdown }, ...more, rung,
    });
    return entry;
  },

  /** Returns what `compaction_preview` says of an outcome. */
  shown(outcome) {
    const now = this.messages();
    const stays = new Set(outcome.keptEntryIds);
    let inTail = false;
    const parted = { dropped: { count: 0, tokens: 0 }, kept: { count: 0, tokens: 0 } };
    for (const { kind, entryId, message } of now) {
      if (kind === "summary" && this.tree.get(entryId).type === "compaction") continue;
      inTail ||= entryId === outcome.firstKeptEntryId;
      const stretch = parted[inTail || stays.has(entryId) ? "kept" : "dropped"];
      stretch.count += 1;
      stretch.tokens += tokensOf(message.content);
    }
    const tokensBefore = this.contextInfo().tokenCount;
    const { summary, rung, firstKeptEntryId, keptEntryIds, clearedEntryIds } = outcome;
    const gone = rung === "clear_tool_results" ? parted.kept.tokens / 2 : parted.dropped.tokens;
    const tokensAfter = Math.max(60, Math.round(tokensBefore - gone + tokens(summary)));
    return { summary, rung, ...(firstKeptEntryId ? { firstKeptEntryId: firstKeptEntryId } : {}), keptEntryIds, ...(clearedEntryIds.length > 0 ? { clearedEntryIds } : {}), ...parted, tokensBefore, tokensAfter };
  },

  /** Undoes the compaction in effect. */
  undo(commandId) {
    const found = this.inEffect();
    this.voidRunning();
    this.undone = [...this.undone, found.entryId];
    this.generation += 1;
    const older = this.inEffect();
    const pins = this.pins.map(({ under, ...pin }) => ({ ...pin, ...(under === found.entryId ? (older ? { under: older.entryId } : {}) : under ? { under } : {}) }));
    if (JSON.stringify(pins) !== JSON.stringify(this.pins)) this.update({ pins });
    this.durable("compaction_undone", { entryId: found.entryId, ...(commandId ? { commandId } : {}), generation: this.generation, contextInfo: this.contextInfo() });
  },

  // Pins

  /** Returns true if an entry on the path may be pinned, that is, it says something. */
  mayPin(entryId) {
    return this.path().some((entry) => entry.entryId === entryId && ["message", "custom_message", "branch_summary"].includes(entry.type));
  },

  /** Returns an entry and what belongs to it: a call with all its results. */
  unitOf(entryId) {
    const path = this.path();
    const entry = this.tree.get(entryId);
    const asked = new Set(calls(entry).length > 0 ? calls(entry) : results(entry));
    if (asked.size === 0) return [entryId];
    const call = path.find((other) => calls(other).some((toolCallId) => asked.has(toolCallId)));
    const all = new Set(call ? calls(call) : asked);
    return path.filter((other) => other === call || results(other).some((toolCallId) => all.has(toolCallId))).map((other) => other.entryId);
  },

  pin(entryId) {
    const path = this.path();
    const summary = this.inEffect(path);
    const place = (id) => path.findIndex((entry) => entry.entryId === id);
    const hidden = summary && place(entryId) < (place(summary.firstKeptEntryId) < 0 ? path.indexOf(summary) : place(summary.firstKeptEntryId));
    const fresh = this.unitOf(entryId).filter((id) => !this.pins.some((pin) => pin.entryId === id));
    const pins = fresh.map((id) => ({ entryId: id, ...(id === entryId ? {} : { with: entryId }), ...(hidden ? { under: summary.entryId } : {}) }));
    this.update({ pins: [...this.pins, ...pins] });
  },

  unpin(entryId) {
    const pinned = this.pins.find((pin) => pin.entryId === entryId).with ?? entryId;
    this.update({ pins: this.pins.filter((pin) => pin.entryId !== pinned && pin.with !== pinned) });
  },
};
