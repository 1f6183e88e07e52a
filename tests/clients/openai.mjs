/**
 * npm's `openai` against the server: a chain that branches, a stream that is resumed, functions over two rounds, the
 * background, conversations, a compaction that is carried on, its WebSocket, chat completions, and 200 turns past a
 * small window.
 * Usage: `node openai.mjs ws://ADDRESS`. Prints one line a step.
 */

import assert from "node:assert/strict";
import { createRequire } from "node:module";

const require = createRequire(import.meta.url);
const OpenAI = require("openai").default;
const { ResponsesWS } = require("openai/resources/responses/ws");

const baseURL = `${process.argv[2].replace(/^ws/, "http")}/v1`;
const client = new OpenAI({ baseURL, apiKey: "none-needed" });
const model = "offline";

/** Opens the SDK's WebSocket, gives `use` a function that creates a response and returns its events, and closes it. */
async function onSocket(use) {
  const socket = new ResponsesWS(client);
  const events = socket.stream()[Symbol.asyncIterator]();
  const ends = ["response.completed", "response.incomplete", "response.failed", "error"];
  const create = async (frame) => {
    socket.send({ type: "response.create", model, ...frame });
    const seen = [];
    while (!ends.includes(seen.at(-1)?.type)) {
      const { value } = await events.next();
      assert.ok(!["close", "reconnecting"].includes(value.type), JSON.stringify(value));
      if (value.type === "message") seen.push(value.message);
      if (value.type === "error") seen.push({ type: "error", message: value.error.message });
    }
    return seen;
  };
  try {
    await use(create);
  } finally {
    socket.close();
  }
  let last;
  do last = (await events.next()).value;
  while (last.type !== "close");
  assert.equal(last.code, 1000);
}

/** The response that a list of events ends with. */
const completed = (events) => {
  assert.equal(events.at(-1).type, "response.completed", JSON.stringify(events.at(-1)));
  return events.at(-1).response;
};
const textOf = (response) => response.output.flatMap((item) => item.content ?? []).map((part) => part.text).join("");

/** The turns of the long conversation: many times what the window of the built-in model holds. */
const TURNS = 200;

const steps = {
  async "models are listed"() {
    const models = await client.models.list();
    assert.equal(models.data[0].id, model);
    assert.equal((await client.models.retrieve(model)).id, model);
  },

  async "a chain goes on, branches, and is retrieved as it was created"() {
    const one = await client.responses.create({ model, input: "My code is K7-tango-42." });
    const two = await client.responses.create({ model, input: "What is my code?", previous_response_id: one.id });
    assert.match(two.output_text, /K7-tango-42/);
    await client.responses.create({ model, input: "A branch.", previous_response_id: one.id });
    const again = await client.responses.retrieve(two.id);
    assert.deepEqual([again.output, again.usage, again.created_at], [two.output, two.usage, two.created_at]);
    const items = await client.responses.inputItems.list(two.id, { order: "asc" });
    assert.deepEqual(items.data.map((item) => item.role), ["user", "assistant", "user"]);
    await client.responses.delete(two.id);
    await assert.rejects(client.responses.retrieve(two.id), { status: 404 });
  },

  async "a stream is resumed in its middle"() {
    const stream = await client.responses.create({ model, input: "count to 20", stream: true });
    const events = [];
    for await (const event of stream) events.push(event);
    const id = events[0].response.id;
    const middle = events.length >> 1;
    const text = (list) => list.map((event) => event.delta ?? "").join("");
    const after = events[middle].sequence_number;
    const rest = [];
    for await (const event of await client.responses.retrieve(id, { stream: true, starting_after: after })) {
      rest.push(event);
    }
    assert.equal(text(events.slice(0, middle + 1)) + text(rest), text(events));
    assert.equal(rest.at(-1).type, "response.completed");
  },

  async "the stream helper collects the response"() {
    const final = await client.responses.stream({ model, input: "count to 5" }).finalResponse();
    assert.match(final.output_text, /5/);
  },

  async "functions are called and answered over two rounds"() {
    const parameters = { type: "object", properties: { text: { type: "string" } }, additionalProperties: false };
    const tools = [{ type: "function", name: "look", description: "Looks.", parameters, strict: false }];
    const one = await client.responses.create({ model, input: "use look", tools });
    const calls = one.output.filter((item) => item.type === "function_call");
    assert.equal(calls.length, 1, JSON.stringify(one.output));
    const input = calls.map((call) => ({ type: "function_call_output", call_id: call.call_id, output: "calm sea" }));
    const two = await client.responses.create({ model, previous_response_id: one.id, input, tools });
    assert.equal(two.status, "completed");
    assert.match(two.output_text, /calm sea/);
    const unknown = [{ type: "function_call_output", call_id: "nobody", output: "x" }];
    await assert.rejects(client.responses.create({ model, previous_response_id: two.id, input: unknown, tools }), {
      status: 400,
      code: "unknown_call",
    });
  },

  async "a response in the background is polled and cancelled"() {
    let made = await client.responses.create({ model, input: "count to 3", background: true });
    while (made.status === "in_progress") made = await client.responses.retrieve(made.id);
    assert.equal(made.status, "completed");
    const long = await client.responses.create({ model, input: "write 5000 words", background: true });
    assert.equal((await client.responses.cancel(long.id)).status, "cancelled");
  },

  async "a background response is streamed, left, resumed, and cancelled"() {
    const stream = await client.responses.create({ model, input: "count to 300", background: true, stream: true });
    let id;
    let last;
    let text = "";
    for await (const event of stream) {
      id ??= event.response.id;
      last = event.sequence_number;
      text += event.delta ?? "";
      if (text.length > 20) break;
    }
    const rest = await client.responses.retrieve(id, { stream: true, starting_after: last });
    for await (const event of rest) {
      text += event.delta ?? "";
      last = event;
    }
    assert.equal(last.type, "response.completed");
    assert.equal(text, last.response.output[0].content[0].text);
    assert.match(text, /300/);
    // Cancelling a response that has ended changes nothing.
    assert.equal((await client.responses.cancel(id)).status, "completed");
  },

  async "input items are listed in pages"() {
    const roles = ["user", "assistant", "user"];
    const input = ["One.", "Two.", "Three."].map((content, at) => ({ role: roles[at], content }));
    const made = await client.responses.create({ model, input });
    const texts = async (query) => {
      const found = [];
      for await (const item of client.responses.inputItems.list(made.id, query)) found.push(item.content[0].text);
      return found;
    };
    assert.deepEqual(await texts({ order: "asc", limit: 2 }), ["One.", "Two.", "Three."]);
    assert.deepEqual(await texts({ limit: 1 }), ["Three.", "Two.", "One."]);
  },

  async "a WebSocket makes several chains by turns"() {
    await onSocket(async (create) => {
      const begin = async (fact, store) => completed(await create({ input: `My flag is ${fact}.`, store }));
      const chains = [
        { fact: "red", last: await begin("red", true) },
        { fact: "green", last: await begin("green", false) },
        { fact: "blue", last: await begin("blue", false) },
      ];
      for (let turn = 0; turn < 3; turn++) {
        for (const chain of chains) {
          const store = chain.fact === "red";
          const frame = { input: "What is my flag?", previous_response_id: chain.last.id, store };
          chain.last = completed(await create(frame));
          assert.match(textOf(chain.last), new RegExp(chain.fact));
        }
      }
      // An older response of a chain begins a branch.
      const back = await create({ input: "What is my flag?", previous_response_id: chains[0].last.id });
      assert.match(textOf(completed(back)), /red/);
      assert.equal((await client.responses.retrieve(chains[0].last.id)).id, chains[0].last.id);
      await assert.rejects(client.responses.retrieve(chains[1].last.id), { status: 404 });
    });
  },

  async "a WebSocket calls functions, and prepares a response without an answer"() {
    await onSocket(async (create) => {
      const parameters = { type: "object", properties: {} };
      const tools = [{ type: "function", name: "look", description: "Looks.", parameters, strict: false }];
      const prepared = completed(await create({ input: "use look", tools, generate: false, store: false }));
      assert.deepEqual(prepared.output, []);
      const frame = { input: "use look", tools, store: false, previous_response_id: prepared.id };
      const asked = completed(await create(frame));
      const call = asked.output.find((item) => item.type === "function_call");
      const input = [{ type: "function_call_output", call_id: call.call_id, output: "calm sea" }];
      const answered = await create({ input, tools, store: false, previous_response_id: asked.id });
      assert.match(textOf(completed(answered)), /calm sea/);
    });
  },

  async "a WebSocket goes on after an error, and events name their lane"() {
    await onSocket(async (create) => {
      const wrong = await create({ input: "x", previous_response_id: "resp_none_none" });
      assert.match(wrong.at(-1).message, /there is no response `resp_none_none`/);
      const events = await create({ input: "count to 3", stream_id: "lane-1" });
      assert.match(textOf(completed(events)), /3/);
      assert.deepEqual([...new Set(events.map((event) => event.stream_id))], ["lane-1"]);
    });
  },

  async "words that steer a response are answered on its WebSocket"() {
    const socket = new ResponsesWS(client);
    socket.send({ type: "response.create", model, input: "count to 60" });
    let first;
    let steered;
    const texts = [];
    for await (const { type, message } of socket.stream()) {
      assert.ok(!["error", "close"].includes(type), `the socket tells of ${type}`);
      if (message?.type === "response.created") first ??= message.response.id;
      if (message?.type === "response.output_text.delta" && texts.length === 0) {
        texts.push("");
        const input = [{ type: "message", role: "user", content: [{ type: "input_text", text: "count to 3" }] }];
        socket.send({ type: "response.steer", previous_response_id: first, input });
      }
      if (message?.type === "response.steer.accepted") steered = message.steer;
      if (message?.type !== "response.completed") continue;
      texts.push(textOf(message.response));
      // The next frame waits for the successor, and shows that there is none if it comes first.
      if (message.response.id === first) socket.send({ type: "response.create", model, input: "count to 2" });
      else if (texts.at(-1) === "1, 2") break;
      else assert.equal(message.response.previous_response_id, first);
    }
    socket.close();
    assert.equal(steered?.previous_response_id, first);
    assert.match(texts[1], /60$/);
    assert.deepEqual(texts.slice(2), ["1, 2, 3", "1, 2"]);
  },

  async "a conversation keeps what is said in it"() {
    const items = [{ type: "message", role: "user", content: "My harbour is Genoa." }];
    const conversation = await client.conversations.create({ items, metadata: { purpose: "test" } });
    const said = await client.responses.create({ model, conversation: conversation.id, input: "Where is my harbour?" });
    assert.match(said.output_text, /Genoa/);
    assert.equal((await client.conversations.retrieve(conversation.id)).metadata.purpose, "test");
    const listed = await client.conversations.items.list(conversation.id, { order: "asc" });
    assert.deepEqual(listed.data.map((item) => item.role), ["user", "user", "assistant"]);
    assert.equal((await client.conversations.delete(conversation.id)).deleted, true);
  },

  async "a compaction is carried to a new chain"() {
    const input = [
      { role: "user", content: "My ship is the Argo." },
      { role: "assistant", content: "A good name." },
    ];
    const compacted = await client.responses.compact({ model, input });
    const next = await client.responses.create({
      model,
      input: [...compacted.output, { role: "user", content: "What is my ship?" }],
    });
    assert.match(next.output_text, /Argo/);
  },

  async "errors have codes"() {
    const wrong = { model, input: "x", previous_response_id: "resp_none_none" };
    await assert.rejects(client.responses.create(wrong), { status: 400, code: "previous_response_not_found" });
    await assert.rejects(client.responses.create({ model, input: "x", temperature: 7 }), { status: 400 });
  },

  async "chat completions go on in one session, and stream"() {
    const messages = [{ role: "user", content: "My lantern is of copper." }];
    const one = await client.chat.completions.create({ model, messages });
    messages.push(one.choices[0].message, { role: "user", content: "What is my lantern of?" });
    const { data, response } = await client.chat.completions.create({ model, messages }).withResponse();
    assert.match(data.choices[0].message.content, /copper/);
    assert.match(response.headers.get("x-reseed-context"), /^tokens=\d+, window=\d+, compactions=0$/);
    const counting = [{ role: "user", content: "count to 6" }];
    const options = { model, messages: counting, stream: true, stream_options: { include_usage: true } };
    let text = "";
    let usage;
    for await (const chunk of await client.chat.completions.create(options)) {
      text += chunk.choices[0]?.delta?.content ?? "";
      usage = chunk.usage ?? usage;
    }
    assert.match(text, /5, 6/);
    assert.ok(usage.total_tokens > 0);
    await assert.rejects(client.chat.completions.create({ model, messages, n: 2 }), { status: 400, param: "n" });
  },

  async "chat completions call functions"() {
    const tools = [{ type: "function", function: { name: "look", parameters: { type: "object", properties: {} } } }];
    const messages = [{ role: "user", content: "use look" }];
    const asked = await client.chat.completions.create({ model, messages, tools });
    const [call] = asked.choices[0].message.tool_calls;
    messages.push(asked.choices[0].message, { role: "tool", tool_call_id: call.id, content: "calm sea" });
    const answered = await client.chat.completions.create({ model, messages, tools });
    assert.match(answered.choices[0].message.content, /calm sea/);
  },

  async [`${TURNS} turns past the window end without an error, and the first is known`]() {
    let last = await client.responses.create({ model, input: "The password of the lighthouse is BRISTLECONE." });
    const filler = "harbour lantern copper meadow engine window river paper winter garden ".repeat(12);
    for (let turn = 0; turn < TURNS; turn++) {
      const input = `Note ${turn}: ${filler}`;
      last = await client.responses.create({ model, input, previous_response_id: last.id });
      assert.equal(last.status, "completed");
    }
    const input = "What is the password of the lighthouse?";
    const asked = await client.responses.create({ model, input, previous_response_id: last.id });
    assert.match(asked.output_text, /BRISTLECONE/);
    const conversation = `conv_${asked.id.split("_")[1]}`;
    const context = await client.get(`/conversations/${conversation}/context`);
    assert.ok(context.compactions > 0, JSON.stringify(context));
  },
};

for (const [name, step] of Object.entries(steps)) {
  try {
    await step();
    console.log(`ok ${name}`);
  } catch (error) {
    console.log(`failed ${name}: ${error.stack}`);
    process.exitCode = 1;
  }
}
