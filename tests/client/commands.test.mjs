/** Every command of the protocol has a method that sends what its arguments say, or is sent by the client itself. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { WRITING_COMMANDS } from "reseed-client";
import { opened, quiet } from "./bench.mjs";

/** Each method's call, and the payload it must send. */
const METHODS = {
  user_input: [
    (session) => session.send("hi", { parentId: "root", whenBusy: "reject" }).accepted,
    { input: "hi", parentId: "root", whenBusy: "reject" },
  ],
  cancel_turn: [(session) => session.cancelTurn("t1"), { turnId: "t1" }],
  retry_turn: [(session) => session.retryTurn().accepted, {}],
  edit_queue: [(session) => session.editQueue({ remove: ["c1"] }), { remove: ["c1"] }],
  approval_response: [
    (session) => session.approve({ approvalId: "a1", argumentsHash: "h" }, "reject_once", "no"),
    { approvalId: "a1", argumentsHash: "h", review: "reject_once", customDenyMessage: "no" },
  ],
  navigate: [(session) => session.navigate("root", { label: "x" }), { entryId: "root", label: "x" }],
  fork_session: [(session) => session.fork("e1"), { entryId: "e1", position: "at" }],
  get_tree: [(session) => session.tree({ depth: 2 }), { depth: 2 }],
  set_label: [(session) => session.setLabel("e1"), { entryId: "e1" }],
  append_custom: [(session) => session.appendCustom("x", null), { customType: "x", data: null }],
  append_custom_message: [
    (session) => session.appendMessage("x", "y", { details: 1 }),
    { customType: "x", content: "y", display: true, details: 1 },
  ],
  get_entries: [(session) => session.getEntry("e1"), { entryId: "e1" }],
  get_context_info: [(session) => session.getContextInfo(), {}],
  get_context: [(session) => session.getContext({ format: "markdown" }), { format: "markdown" }],
  start_compaction: [(session) => session.startCompaction({ rebuild: true }), { rebuild: true }],
  preview_compaction: [(session) => session.previewCompaction(), {}],
  cancel_compaction: [(session) => session.cancelCompaction("j1"), { jobId: "j1" }],
  undo_compaction: [(session) => session.undoCompaction(), {}],
  pin_entry: [(session) => session.pin("e1"), { entryId: "e1" }],
  unpin_entry: [(session) => session.unpin("e1"), { entryId: "e1" }],
  rename_session: [(session) => session.rename("x"), { name: "x" }],
  delete_session: [(session) => session.delete(), {}],
  set_context_strategy: [(session) => session.setStrategy("manual"), { strategy: "manual" }],
  set_model: [(session) => session.setModel("m", "low"), { model: "m", reasoningEffort: "low" }],
  set_instructions: [(session) => session.setInstructions(""), { instructions: "" }],
  list_tools: [(session) => session.listTools(), {}],
  set_tools: [(session) => session.setTools({ off: ["x"] }), { off: ["x"] }],
  withdraw_approval: [(session) => session.withdrawApproval("a1"), { approvalId: "a1" }],
  set_options: [(session) => session.setOptions({ temperature: 1 }), { temperature: 1 }],
  register_tools: [(session) => session.host({ tools: {} }), { tools: [] }],
  register_hooks: [(session) => session.host({ hooks: [] }), { hooks: [] }],
  take_over_host: [(session) => session.takeOverHost(), {}],
  tool_result: [(session) => session.sendToolResult("c1", "x", true), { toolCallId: "c1", output: "x", isError: true }],
  hook_result: [(session) => session.sendHookResult("h1", { block: true }), { hookCallId: "h1", block: true }],
  search_history: [(session) => session.searchHistory("x", { limit: 3 }), { query: "x", limit: 3 }],
  list_sessions: [(_, client) => client.listSessions({ limit: 3 }), { limit: 3 }],
  list_models: [(_, client) => client.listModels(), {}],
};

/** Commands that the client sends by itself. Tests in other files cover them. */
const BY_ITSELF = ["hello", "authenticate", "open_session", "close_session", "ping", "call_progress"];

for (const [type, [call, payload]] of Object.entries(METHODS)) {
  test(`${type} has a method`, async () => {
    const { client, server, session } = await opened();
    await call(session, client);
    await quiet();
    const sent = server.commands.find((command) => command.type === type);
    assert.deepEqual(sent.payload, payload);
    assert.equal(sent.sessionId, type.startsWith("list_") && type !== "list_tools" ? undefined : session.id);
    if (WRITING_COMMANDS.includes(type)) assert.ok(sent.id.length >= 16);
  });
}

test("every command of the schema is covered", () => {
  const file = new URL("../../protocol/schema/reseed.v2.schema.json", import.meta.url);
  const names = Object.keys(JSON.parse(readFileSync(file, "utf8")).$defs);
  const commands = names.filter((name) => name.startsWith("command.")).map((name) => name.slice("command.".length));
  assert.deepEqual([...Object.keys(METHODS), ...BY_ITSELF].sort(), commands.sort());
});
