/**
 * The part of the mock server that asks people about tools. A question with the word "approve" causes a tool call that
 * must be approved first; with "patch", the call applies a patch.
 */

const OPTIONS = ["allow_once", "allow_always", "reject_once", "reject_always"];

/** A command with a character that changes the reading direction. */
export const COMMAND = ["rm", "-r", "build \u202etxt"];

const PATCH = "*** Begin Patch\n*** Update File: a.txt\n-old <b>line</b>\n+new line\n*** End Patch\n";

/** Stands in for the server's `visible`. */
const visible = (text) => text.replaceAll("\u202e", "⟨U+202E⟩");

/** Runs a tool call that needs approval, up to its result. */
export async function askingTool(server, world, text) {
  const item = world.startItem();
  const isPatch = /\bpatch\b/.test(text);
  const call = isPatch ? { input: PATCH } : { command: COMMAND, workdir: "." };
  const name = isPatch ? "apply_patch" : "shell";
  world.delta(item, 0, "I need a tool for that.");
  const content = { type: "tool_call", name, arguments: JSON.stringify(call), toolCallId: world.id("c") };
  world.finishItem(item, { stopReason: "tool_calls", calls: [content] });
  const standing = world.standing.find((one) => one.name === name);
  let allowed = standing?.option === "allow_always";
  let why = "the user has rejected this very call for good.";
  if (!standing) {
    const decided = await new Promise((resolve) => {
      world.ask(content);
      server.asked.set(world.approvals.at(-1).approvalId, resolve);
      server.cancels.set(world, () => {
        if (world.turn) world.finishTurn("cancelled");
        resolve(null);
      });
    });
    if (!decided) return false;
    allowed = decided.review.startsWith("allow");
    why = decided.customDenyMessage ?? "the user rejected this call.";
  }
  if (allowed) {
    world.call({ ...content, place: "server" });
    world.ephemeral("call_progressed", { toolCallId: content.toolCallId, message: "half of it", deadline: new Date(Date.UTC(2026, 10, 21, 7)).toISOString() });
    await (/\bheld\b/.test(text) ? server.hold(world) : server.step(world));
    world.resolve(content.toolCallId, "removed");
  } else {
    const part = { type: "tool_result", toolCallId: content.toolCallId, output: `Not called: ${why}`, isError: true };
    world.append({ type: "message", role: "tool", content: [part] }, { turnId: world.turn.turnId });
  }
  return true;
}

/** What a `World` knows about approvals. */
export const approvalRules = {
  ask({ toolCallId, name, arguments: text }) {
    const approval = {
      approvalId: this.id("a"), toolCallId, turnId: this.turn.turnId, name, arguments: text,
      argumentsHash: "ab".repeat(32), display: visible(text), place: "server",
      reason: `\`${name}\` may destroy what it changes.`, options: OPTIONS, generation: this.generation,
      expiresAt: new Date(Date.now() + 3_600_000).toISOString(),
    };
    this.approvals = [...this.approvals, approval];
    this.durable("approval_request", approval);
  },

  /** Resolves an approval: with an option, or because it expired. */
  decide(approval, { outcome, option, by }) {
    this.approvals = this.approvals.filter((other) => other !== approval);
    const { approvalId, toolCallId, name, argumentsHash, display } = approval;
    this.durable("call_resolved", { toolCallId, outcome, approvalId, ...(option ? { option } : {}), ...(by ? { by } : {}) });
    if (!option?.endsWith("always")) return;
    const standing = [...this.standing, { approvalId, name, argumentsHash, display, option, since: this.updatedAt }];
    this.updateStanding(standing);
  },

  updateStanding(standing) {
    this.standing = standing;
    this.durable("session_updated", { standingApprovals: standing });
  },
};

export const toolCommands = {
  on_approval_response({ client, payload, reply, refuse, world }) {
    const { approvalId, review } = payload;
    const approval = world.approvals.find((one) => one.approvalId === approvalId);
    if (!approval) return refuse(this.asked.has(approvalId) ? "too_late" : "no_pending_approval", "it is decided already");
    const outcome = review.startsWith("allow") ? "allowed" : "rejected";
    world.decide(approval, { outcome, option: review, by: client.about.clientId });
    reply("ok", { asOfSeq: world.seq });
    this.asked.get(approvalId)?.(payload);
  },

  on_withdraw_approval({ payload, reply, refuse, world }) {
    const standing = world.standing.filter((one) => one.approvalId !== payload.approvalId);
    if (standing.length === world.standing.length) return refuse("no_pending_approval", "there is no such lasting answer");
    world.updateStanding(standing);
    reply("ok", { asOfSeq: world.seq });
  },

  on_set_tools({ payload, reply, world }) {
    const { toolsOff: _, ...settings } = world.settings;
    world.update({ settings: payload.off.length > 0 ? { ...settings, toolsOff: payload.off } : settings });
    reply("ok", { asOfSeq: world.seq });
  },

  on_list_tools({ reply, world }) {
    const off = world.settings.toolsOff ?? [];
    const items = this.tools.map((tool) => ({ ...tool, ...(off.includes(tool.name) ? { off: true } : {}) }));
    reply("tools", { items, ...(this.toolServers.length > 0 ? { servers: this.toolServers } : {}), tokens: items.filter((tool) => !tool.off).reduce((sum, tool) => sum + tool.tokens, 0) });
  },
};
