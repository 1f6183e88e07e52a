/**
 * The AI SDK's own providers (npm's `@ai-sdk/openai` and `@ai-sdk/open-responses`) with reseed in front of a scripted
 * model: texts, streams, tools over several steps, objects, and a conversation in the AI SDK's messages. Usage:
 * `node ai_provider.mjs RESEED`. Prints one line a step.
 */

import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { inTemporaryFolder, startReseed } from "./server.mjs";
import { startModel, textOf } from "./scripted_model.mjs";

const require = createRequire(import.meta.url);
const { generateText, isStepCount, Output, streamText, tool } = require("ai");
const { createOpenAI } = require("@ai-sdk/openai");
const { createOpenResponses } = require("@ai-sdk/open-responses");
const { z } = require("zod");

const MODEL = "scripted";
const STEPS_MAX = 5;

/** Looks twice if it may, then says what it saw; tells its code if asked. */
function script({ messages, tools, response_format: format }) {
  if (format) return { text: JSON.stringify({ place: "Genoa" }) };
  const asked = messages.findLastIndex((message) => message.role === "user");
  const results = messages.slice(asked).filter((message) => message.role === "tool");
  if (textOf(messages[asked]).includes("What is my code?")) {
    return { text: /code is (\S+)\./.exec(messages.map(textOf).join("\n"))?.[1] ?? "unknown" };
  }
  if (tools && results.length < 2) {
    return { text: `Look ${results.length}. `, calls: [{ name: "look", arguments: { place: `${results.length}` } }] };
  }
  return { text: results.length > 0 ? `Saw ${textOf(results.at(-1))}.` : "Noted." };
}

await inTemporaryFolder(async (folder) => {
  const model = await startModel({ name: MODEL, windowTokens: 100_000, script });
  const server = await startReseed(process.argv[2], folder, { OPENAI_BASE_URL: model.url, MODEL });
  const openai = createOpenAI({ baseURL: `${server.url}/v1`, apiKey: "none-needed" });
  const openResponses = createOpenResponses({ name: "reseed", url: `${server.url}/v1/responses` });
  const look = tool({
    description: "Looks.",
    inputSchema: z.object({ place: z.string() }),
    execute: async ({ place }) => `the sea at ${place}`,
  });
  const withTools = { tools: { look }, stopWhen: isStepCount(STEPS_MAX), maxRetries: 0 };

  const ways = {
    "Responses": { model: openai.responses(MODEL) },
    "Responses without storing": { model: openai.responses(MODEL), providerOptions: { openai: { store: false } } },
    "Chat Completions": { model: openai.chat(MODEL) },
    "Open Responses": { model: openResponses(MODEL) },
  };
  const steps = {};
  for (const [way, options] of Object.entries(ways)) {
    steps[`${way}: tools run over several steps, also in a stream`] = async () => {
      const made = await generateText({ ...options, ...withTools, prompt: "Please look." });
      assert.equal(made.text, "Saw the sea at 1.");
      assert.equal(made.steps.length, 3);
      let text = "";
      for await (const piece of streamText({ ...options, ...withTools, prompt: "Please look." }).textStream) text += piece;
      assert.equal(text, "Look 0. Look 1. Saw the sea at 1.");
    };
    steps[`${way}: a conversation goes on`] = async () => {
      const messages = [{ role: "user", content: "My code is K7-tango-42." }];
      for (const content of ["Please look.", "What is my code?"]) {
        messages.push(...(await generateText({ ...options, ...withTools, messages })).response.messages);
        messages.push({ role: "user", content });
      }
      assert.equal((await generateText({ ...options, ...withTools, messages })).text, "K7-tango-42");
      // Nothing is told twice.
      const { messages: told } = model.requests.at(-1);
      assert.equal(told.filter((message) => message.role === "user").length, 3);
    };
    steps[`${way}: an object has the form of its schema`] = async () => {
      const output = Output.object({ schema: z.object({ place: z.string() }) });
      assert.deepEqual((await generateText({ ...options, prompt: "Where?", output })).output, { place: "Genoa" });
    };
  }
  steps["the model server was asked nothing that is wrong"] = async () => assert.deepEqual(model.broken, []);

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
