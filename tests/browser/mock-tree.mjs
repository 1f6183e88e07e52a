/** The mock server's commands about the tree, the queue and the session list, one method each, as in `mock.mjs`. */

import { nameOf } from "./world.mjs";

/** The `welcome` features that cover these commands. */
export const TREE_FEATURES = ["queue", "edit_queue", "steer", "tree", "navigate", "labels", "fork", "watch"];

const text = (entry) => entry.content.map((part) => part.text).join("\n");

export const treeCommands = {
  on_get_tree({ payload, world, reply, refuse }) {
    if (payload.rootId !== undefined && !world.tree.has(payload.rootId)) return refuse("entry_not_found", "there is no such entry");
    reply("tree", structuredClone(world.nodes(payload, this.nodesMax)));
  },

  on_navigate({ id, payload, world, reply, refuse }) {
    if (world.leaving?.id === id) {
      // Resent after a lost connection: the last sender gets the answer.
      Object.assign(world.leaving, { reply, refuse });
      return;
    }
    if (world.turn || world.heldUp) return refuse("turn_running", "the session is busy");
    const { entryId, position = "at", summarize, instructions } = payload;
    const entry = world.tree.get(entryId);
    if (entryId !== "root" && !entry) return refuse("entry_not_found", "there is no such entry");
    const to = { before: () => entry.parentId, at: () => entry?.entryId ?? null, tip: () => (entry ? world.tip(entryId) : null) }[position]();
    const asOfSeq = world.seq;
    const arrive = (summary) => {
      const about = world.move(to, { commandId: id, ...(summary === undefined ? {} : { summary }) });
      (world.leaving?.reply ?? reply)("navigated", {
        leafId: nameOf(world.leafId), asOfSeq, ...(about ? { branchSummaryEntryId: about.entryId } : {}),
        ...(position === "before" ? { input: entry.content } : {}),
      });
    };
    if (!summarize) return arrive();
    world.voidRunning();
    world.startLeaving();
    world.leaving = { id, reply, refuse };
    void this.leave(world, id, () => arrive(`## Goal\nWhat was left.\n\nIt dwells on: ${instructions ?? "nothing"}.`));
  },

  async leave(world, commandId, arrive) {
    for (let done = 1; done <= 2; done += 1) {
      if (await this.step(world)) {
        world.failCompaction("navigation_cancelled", "the summary was cancelled", commandId);
        world.leaving.refuse("navigation_cancelled", "the summary was cancelled");
        world.leaving = null;
        return;
      }
      world.ephemeral("compaction_progress", { ...world.compaction, done, total: 2 });
    }
    arrive();
    world.leaving = null;
  },

  on_set_label({ id, payload, world, reply }) {
    const { entryId, label } = payload;
    reply("ok", { asOfSeq: world.seq });
    world.append({ type: "label", targetId: entryId, ...(label === undefined ? {} : { label }) }, { commandId: id });
  },

  on_fork_session({ payload, world, reply, refuse }) {
    const entry = world.tree.get(payload.entryId);
    if (!entry) return refuse("entry_not_found", "there is no such entry");
    const before = payload.position === "before";
    const copy = this.make();
    for (const one of world.path(before ? entry.parentId : entry.entryId)) {
      const { entryId, parentId, timestamp, ...data } = one;
      copy.append(structuredClone(data));
    }
    copy.update({ name: `${world.name} (fork)` });
    reply("forked", { sessionId: copy.sessionId, ...(before ? { input: entry.content } : {}) });
  },

  on_edit_queue({ payload, world, reply, refuse }) {
    const { remove = [], order } = payload;
    const waits = (id) => world.queue.some((item) => item.commandId === id);
    if (![...remove, ...(order ?? [])].every(waits)) return refuse("not_queued", "no such input is waiting");
    reply("ok", { asOfSeq: world.seq });
    for (const item of world.queue.filter((one) => remove.includes(one.commandId))) world.unqueue(item, "cancelled");
    if (order) world.reorder(order);
  },

  on_append_custom_message({ id, payload, world, reply }) {
    const { customType, content, display } = payload;
    reply("ok", { asOfSeq: world.seq });
    world.append({ type: "custom_message", customType, content: [{ type: "text", text: content }], display }, { commandId: id });
  },

  /** Passes steering inputs to the model before its next request. */
  deliverSteered(world) {
    for (let item = world.queue.find((one) => one.steer); item; item = world.queue.find((one) => one.steer)) {
      world.unqueue(item, "steered");
      world.append({ type: "message", role: "user", content: item.content }, { commandId: item.commandId, turnId: world.turn.turnId });
    }
  },

  /** Notifies the watchers of the list. */
  tellWatchers(world, more = {}) {
    for (const client of this.watchers) client.send(JSON.stringify({ type: "session_changed", payload: { ...world.item(), ...more } }));
  },

  saidLast(world) {
    return text(world.entries.findLast((entry) => entry.role === "user"));
  },
};
