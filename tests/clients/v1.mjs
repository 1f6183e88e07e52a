/**
 * A v1 client: `node v1.mjs ws://HOST:PORT npm|builtin`. Checks the order of a turn's frames, the meter, compaction and
 * refusals against what clients of this dialect need.
 */

import { checkCompacted, checkInfo } from "./meter.mjs";
import { Wire, run } from "./wire.mjs";

const [address, implementation] = process.argv.slice(2);
const STRATEGY = "ThresholdContextManager";

/** Fills an eighth of the window, so that there is something to compact soon. */
const BALLAST = `Ballast: ${"sand gravel stone ".repeat(200)}`;

const said = (text) => ({ type: "message", role: "user", content: [{ type: "input_text", text }] });

let wire;
let commands = 0;
const items = new Set();
const turns = new Set();

const send = (type, payload) => {
  commands += 1;
  wire.send({ id: String(commands), type, payload });
  return String(commands);
};

const error = async (code) => {
  const payload = await wire.nextOf("error");
  wire.expect(typeof payload.message === "string" && payload.message !== "", "an error has a message");
  wire.same(payload.details.code, code, "the code");
  wire.same(typeof payload.details.retriable, "boolean", "the type of `retriable`");
  return payload;
};

/** Checks a whole turn frame by frame. Returns the answer's text. */
const turn = async (input) => {
  send("user_input", input);
  wire.same(await wire.nextOf("loading_state"), { loading: true }, "the first frame");
  let text = "";
  let frame = await wire.next();
  for (; frame.type === "response_item"; frame = await wire.next()) {
    const item = frame.payload;
    wire.same([item.type, item.role], ["message", "assistant"], "an item");
    wire.expect(!items.has(item.id), `the item id ${item.id} came twice`);
    items.add(item.id);
    for (const part of item.content) {
      wire.same(part.type, "output_text", "a part");
      text += part.text;
    }
  }
  wire.expect(text !== "", "an answer has text");
  wire.same([frame.type, frame.payload], ["loading_state", { loading: false }], "the frame after the items");
  const info = await wire.nextOf("context_info");
  checkInfo(wire, info, STRATEGY);
  const finished = await wire.nextOf("agent_finished");
  wire.same(Object.keys(finished), ["responseId"], "the fields of agent_finished");
  wire.expect(!turns.has(finished.responseId), "a turn has an id of its own");
  turns.add(finished.responseId);
  return { text, info };
};

/** Requests the meter, which comes under the command's id. This also shows that no other frame was still to come. */
const meter = async () => {
  const id = send("get_context_info");
  const frame = await wire.next();
  wire.same([frame.id, frame.type], [id, "context_info"], "the next frame");
  checkInfo(wire, frame.payload, STRATEGY);
  return frame.payload;
};

await run({
  "the meter answers before anything was said": async () => {
    wire = await Wire.open(implementation, `${address}/ws`);
    wire.same(wire.protocol, "", "the subprotocol");
    wire.same((await meter()).transcriptLength, 0, "the transcript's length");
    send("manual_compact");
    await error("nothing_to_compact");
  },
  "a turn has its frames in order": async () => {
    const { text } = await turn({ input: [said("Repeat after me: naïve ferries 🚢 你好")], previousResponseId: null });
    wire.same(text, "naïve ferries 🚢 你好", "the answer");
  },
  "a second turn knows the first": async () => {
    await turn({ input: [said("The harbour code is K7-tango-42.")] });
    const { text, info } = await turn({ input: [said("What is the harbour code?")], previousResponseId: "unknown" });
    wire.expect(text.includes("K7-tango-42"), `the answer is ${text}`);
    wire.same(info.transcriptLength, 6, "the transcript's length");
    wire.same((await meter()).tokenCount, info.tokenCount, "the count asked for, by the count told");
  },
  "a stray approval is refused": async () => {
    for (const review of ["yes", "NO_CONTINUE", "always"]) {
      send("approval_response", { review, customDenyMessage: null });
      await error("no_pending_approval");
    }
  },
  "bad frames are refused and the connection continues": async () => {
    wire.send("this is not JSON");
    await error("invalid_json");
    send("no_such_command");
    await error("unknown_command");
    send("user_input", { input: "text where items should be" });
    await error("invalid_field");
    await meter();
  },
  "manual_compact reports the true numbers and nothing else": async () => {
    for (let round = 0; round < 4; round += 1) await turn({ input: [said(BALLAST)] });
    const before = await meter();
    send("manual_compact");
    const compacted = await wire.nextOf("context_compacted");
    checkCompacted(wire, compacted, "manual", STRATEGY);
    const after = await meter();
    wire.same(after.compactions, before.compactions + 1, "the number of compactions");
    wire.expect(after.tokenCount < before.tokenCount, `${before.tokenCount} tokens became ${after.tokenCount}`);
    const { text } = await turn({ input: [said("What is the harbour code?")] });
    wire.expect(text.includes("K7-tango-42"), `the answer after the compaction is ${text}`);
  },
  "the socket is closed properly": async () => wire.same(await wire.close(), 1000, "the code of closing"),
  "each connection has its own session": async () => {
    wire = await Wire.open(implementation, `${address}/`);
    const { text, info } = await turn({ input: [said("What is the harbour code I told you?")] });
    wire.expect(!text.includes("K7-tango-42"), `the answer is ${text}`);
    wire.same(info.transcriptLength, 2, "the transcript's length");
    wire.same(await wire.close(), 1000, "the code of closing");
  },
});
