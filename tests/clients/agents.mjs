/**
 * OpenAI's Agents SDK (npm's `@openai/agents`) on Responses, with reseed in front of a scripted model: tools over
 * several rounds, streams, hand-offs, typed answers; with the conversation kept by the SDK's own session, by a chain
 * of responses, and by reseed as a conversation. Usage: `node agents.mjs RESEED http|websocket`, the server's binary
 * and the way to reach it; the second needs Node's own WebSocket. Prints one line a step.
 */

import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { inTemporaryFolder, startReseed } from "./server.mjs";
import { startModel, textOf } from "./scripted_model.mjs";

const require = createRequire(import.meta.url);
const {
  Agent,
  MemorySession,
  OpenAIConversationsSession,
  OpenAIResponsesCompactionSession,
  run,
  setDefaultOpenAIClient,
  setOpenAIResponsesTransport,
  setTracingDisabled,
  tool,
} = require("@openai/agents");
const OpenAI = require("openai").default;
const { z } = require("zod");

/** By its name, since the SDK compacts only with models of OpenAI. */
const MODEL = "gpt-scripted";
const PLACES = ["harbour", "lighthouse", "tower"];

/** Answers by what the system prompt asks for, from what the conversation holds. */
function script({ messages, tools = [], response_format: format }) {
  const all = messages.map(textOf).join("\n");
  const asked = textOf(messages.findLast((message) => message.role === "user"));
  const results = messages.slice(messages.findLastIndex((message) => message.role === "user"));
  const handOff = tools.find((offered) => offered.function.name.startsWith("transfer_to_"))?.function.name;
  if (/^You write summaries/.test(textOf(messages[0]))) {
    const fact = /code is \S+\./.exec(all)?.[0] ?? "place is the harbour.";
    return { text: `## Critical Context\n- The ${fact}` };
  }
  if (format?.type === "json_schema") return { text: JSON.stringify({ place: "Genoa", ships: 3 }) };
  if (handOff && asked.includes("refund")) return { calls: [{ name: handOff, arguments: {} }] };
  if (/You give refunds/.test(textOf(messages[0]))) return { text: "Refunded by the agent for refunds." };
  const looked = results.filter((message) => message.role === "tool").length;
  if (asked.includes("look around") && looked < PLACES.length) {
    return { text: `Looking, ${looked}.`, calls: [{ name: "look", arguments: { place: PLACES[looked] } }] };
  }
  if (asked.includes("look around")) return { text: `I saw: ${results.slice(-1).map(textOf)}` };
  if (asked.includes("What is my code?")) return { text: /code is (\S+)\./.exec(all)?.[1] ?? "I do not know." };
  return { text: "Noted." };
}

const look = tool({
  name: "look",
  description: "Looks at a place.",
  parameters: z.object({ place: z.string() }),
  execute: async ({ place }) => `calm sea at the ${place}`,
});
const agent = new Agent({ name: "Looker", instructions: "You look around.", tools: [look], model: MODEL });
const refunds = new Agent({ name: "Refunds", instructions: "You give refunds.", model: MODEL });
const desk = Agent.create({ name: "Desk", instructions: "You send people on.", handoffs: [refunds], model: MODEL });

const FOUND = "I saw: calm sea at the tower";

await inTemporaryFolder(async (folder) => {
  const model = await startModel({ name: MODEL, windowTokens: 100_000, script });
  const server = await startReseed(process.argv[2], folder, { OPENAI_BASE_URL: model.url, MODEL });
  const client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: "none-needed", maxRetries: 0 });
  setDefaultOpenAIClient(client);
  setOpenAIResponsesTransport(process.argv[3]);
  setTracingDisabled(true);

  /** Every way to keep a conversation: its options for `run`, given the last result. */
  const ways = {
    "its own session in memory": async () => {
      const session = new MemorySession();
      return () => ({ session });
    },
    "a chain of responses": async () => (last) => ({ previousResponseId: last?.lastResponseId }),
    "a conversation of the server": async () => {
      const { id } = await client.conversations.create();
      return () => ({ conversationId: id });
    },
    "the SDK's session on a conversation of the server": async () => {
      const session = new OpenAIConversationsSession({ client });
      return () => ({ session });
    },
  };

  const steps = {};
  for (const [way, open] of Object.entries(ways)) {
    steps[`with ${way}, tools run over several rounds, and what was said is known`] = async () => {
      const options = await open();
      const told = await run(agent, "My code is K7-tango-42.", options());
      const looked = await run(agent, "Please look around.", options(told));
      assert.equal(looked.finalOutput, FOUND);
      assert.equal(looked.rawResponses.length, PLACES.length + 1);
      assert.ok(looked.runContext.usage.inputTokens > 0);
      const asked = await run(agent, "What is my code?", options(looked));
      assert.equal(asked.finalOutput, "K7-tango-42");
      // Nothing is told twice.
      const request = model.requests.at(-1);
      assert.deepEqual(
        request.messages.filter((message) => message.role === "user").map(textOf),
        ["My code is K7-tango-42.", "Please look around.", "What is my code?"],
      );
      assert.equal(request.messages.filter((message) => message.role === "tool").length, PLACES.length);
    };
    steps[`with ${way}, a streamed run calls tools`] = async () => {
      const options = await open();
      const streamed = await run(agent, "Please look around.", { stream: true, ...options() });
      let text = "";
      const items = [];
      for await (const event of streamed) {
        if (event.type === "raw_model_stream_event" && event.data.type === "output_text_delta") text += event.data.delta;
        if (event.type === "run_item_stream_event") items.push(event.name);
      }
      await streamed.completed;
      assert.equal(streamed.finalOutput, FOUND);
      assert.equal(text, `Looking, 0.Looking, 1.Looking, 2.${FOUND}`);
      assert.equal(items.filter((name) => name === "tool_output").length, PLACES.length);
    };
    steps[`with ${way}, an agent hands over to another`] = async () => {
      const options = await open();
      const first = await run(desk, "I want a refund.", options());
      assert.equal(first.finalOutput, "Refunded by the agent for refunds.");
      assert.equal(first.lastAgent.name, "Refunds");
      const second = await run(first.lastAgent, "And another one.", options(first));
      assert.equal(second.finalOutput, "Refunded by the agent for refunds.");
    };
  }

  for (const compactionMode of ["previous_response_id", "input"]) {
    steps[`a session is compacted by its ${compactionMode}, and the newest is known`] = async () => {
      let due = false;
      const shouldTriggerCompaction = () => due;
      const session = new OpenAIResponsesCompactionSession({ client, model: MODEL, compactionMode, shouldTriggerCompaction });
      await run(agent, `A note: ${"harbour lantern copper meadow ".repeat(400)}`, { session });
      due = true;
      await run(agent, "My code is K7-tango-42.", { session });
      due = false;
      assert.deepEqual((await session.getItems()).map((item) => item.type), ["compaction"]);
      assert.equal((await run(agent, "What is my code?", { session })).finalOutput, "K7-tango-42");
      assert.equal(model.requests.at(-1).messages.filter((message) => message.role === "assistant").length, 0);
    };
  }

  Object.assign(steps, {
    async "an answer has the type that was asked for"() {
      const outputType = z.object({ place: z.string(), ships: z.number() });
      const typed = new Agent({ name: "Counter", instructions: "Count.", model: MODEL, outputType });
      assert.deepEqual((await run(typed, "How many?")).finalOutput, { place: "Genoa", ships: 3 });
      const { json_schema: asked } = model.requests.at(-1).response_format;
      assert.deepEqual(Object.keys(asked.schema.properties), ["place", "ships"]);
    },

    async "the items of a session are those that were said"() {
      const session = new OpenAIConversationsSession({ client });
      await run(agent, "Please look around.", { session });
      const types = (await session.getItems()).map((item) => item.type);
      const round = ["message", "function_call", "function_call_result"];
      assert.deepEqual(types, ["message", ...round, ...round, ...round, "message"]);
      const newest = await session.getItems(1);
      assert.equal(newest[0].content[0].text, FOUND);
      await session.clearSession();
    },

    async "the model server was asked nothing that is wrong"() {
      assert.deepEqual(model.broken, []);
    },
  });

  for (const [name, step] of Object.entries(steps)) {
    try {
      await step();
      console.log(`ok ${name}`);
    } catch (error) {
      console.log(`failed ${name}: ${error.stack}`);
      process.exitCode = 1;
    }
  }
  await server.stop();
  model.close();
});
