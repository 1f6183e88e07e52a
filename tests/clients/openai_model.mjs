/**
 * OpenAI's SDKs for Node and Python, with reseed in front of a scripted model: what the model server gets of images,
 * JSON schemas, sampling and forced tools, by Responses and by Chat Completions. Usage:
 * `node openai_model.mjs RESEED PYTHON`, the server's binary and a Python with `openai`. Prints one line a step.
 */

import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";
import { inTemporaryFolder, runToEnd, startReseed } from "./server.mjs";
import { startModel, textOf } from "./scripted_model.mjs";

const require = createRequire(import.meta.url);
const OpenAI = require("openai").default;
const { zodResponseFormat, zodTextFormat } = require("openai/helpers/zod");
const { z } = require("zod");

const MODEL = "scripted";
/** A red pixel. */
const IMAGE =
  "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC";
const Weather = z.object({ place: z.string(), knots: z.number() });

/** Answers with what was asked for: JSON by the schema, the number of images, or a call. */
function script({ messages, response_format: format, tools, tool_choice: choice }) {
  if (format) return { text: JSON.stringify({ place: "Genoa", knots: 12 }) };
  const results = messages.filter((message) => message.role === "tool");
  if (tools && choice !== "none" && results.length === 0) return { calls: [{ name: "wind", arguments: { place: "Genoa" } }] };
  const images = messages.flatMap((message) => (Array.isArray(message.content) ? message.content : []));
  return { text: `I see ${images.filter((part) => part.type === "image_url").length} images. ${results.map(textOf)}` };
}

await inTemporaryFolder(async (folder) => {
  const model = await startModel({ name: MODEL, windowTokens: 100_000, script });
  const server = await startReseed(process.argv[2], folder, { OPENAI_BASE_URL: model.url, MODEL });
  const client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: "none-needed", maxRetries: 0 });
  const newest = () => model.requests.at(-1);

  const steps = {
    async "a response has the form of a JSON schema"() {
      const text = { format: zodTextFormat(Weather, "weather") };
      const parsed = await client.responses.parse({ model: MODEL, input: "How is the wind?", text });
      assert.deepEqual(parsed.output_parsed, { place: "Genoa", knots: 12 });
      const { type, json_schema: asked } = newest().response_format;
      assert.deepEqual([type, asked.name, asked.strict, asked.schema], ["json_schema", "weather", true, text.format.schema]);
      const plain = await client.responses.create({ model: MODEL, input: "Well?", previous_response_id: parsed.id });
      assert.equal(plain.output_text.trim(), "I see 0 images.");
    },

    async "a completion has the form of a JSON schema"() {
      const messages = [{ role: "user", content: "How is the wind?" }];
      const response_format = zodResponseFormat(Weather, "weather");
      const parsed = await client.chat.completions.parse({ model: MODEL, messages, response_format });
      assert.deepEqual(parsed.choices[0].message.parsed, { place: "Genoa", knots: 12 });
      assert.deepEqual(newest().response_format.json_schema.schema, response_format.json_schema.schema);
      const stream = client.chat.completions.stream({ model: MODEL, messages, response_format });
      assert.deepEqual((await stream.finalChatCompletion()).choices[0].message.parsed, { place: "Genoa", knots: 12 });
    },

    async "images reach the model, also from earlier turns"() {
      const look = (text) => ({
        role: "user",
        content: [
          { type: "input_text", text },
          { type: "input_image", image_url: IMAGE, detail: "low" },
        ],
      });
      const one = await client.responses.create({ model: MODEL, input: [look("What is this?")] });
      assert.equal(one.output_text.trim(), "I see 1 images.");
      const part = newest().messages.at(-1).content.find((part) => part.type === "image_url");
      assert.deepEqual(part.image_url, { url: IMAGE, detail: "low" });
      const two = await client.responses.create({ model: MODEL, input: [look("And this?")], previous_response_id: one.id });
      assert.equal(two.output_text.trim(), "I see 2 images.");
      const { data } = await client.responses.inputItems.list(two.id, { order: "asc" });
      assert.deepEqual(data[0].content.map((part) => part.type), ["input_text", "input_image"]);
      assert.equal(data[0].content[1].image_url, IMAGE);
    },

    async "images of chat completions reach the model"() {
      const content = [
        { type: "text", text: "What is this?" },
        { type: "image_url", image_url: { url: IMAGE } },
      ];
      const made = await client.chat.completions.create({ model: MODEL, messages: [{ role: "user", content }] });
      assert.equal(made.choices[0].message.content.trim(), "I see 1 images.");
    },

    async "sampling and a forced tool are passed on"() {
      const parameters = { type: "object", properties: { place: { type: "string" } }, required: ["place"] };
      const tools = [{ type: "function", name: "wind", description: "Tells it.", parameters, strict: false }];
      const sampling = { temperature: 0.25, top_p: 0.5, max_output_tokens: 77 };
      const tool_choice = { type: "function", name: "wind" };
      const asked = await client.responses.create({ model: MODEL, input: "Wind?", tools, tool_choice, ...sampling });
      const request = newest();
      assert.deepEqual([request.temperature, request.top_p], [0.25, 0.5]);
      assert.equal(request.max_completion_tokens ?? request.max_tokens, 77);
      assert.deepEqual(request.tool_choice, { type: "function", function: { name: "wind" } });
      const [call] = asked.output.filter((item) => item.type === "function_call");
      assert.deepEqual(JSON.parse(call.arguments), { place: "Genoa" });
      const input = [{ type: "function_call_output", call_id: call.call_id, output: "12 knots" }];
      const told = await client.responses.create({ model: MODEL, input, tools, previous_response_id: asked.id });
      assert.match(told.output_text, /12 knots/);
    },

    async "Python does the same"() {
      const script = fileURLToPath(new URL("openai_model.py", import.meta.url));
      const { status, err } = await runToEnd(process.argv[3], [script, `${server.url}/v1`, IMAGE], {});
      assert.equal(status, 0, err);
    },

    async "the model server was asked nothing that is wrong"() {
      assert.deepEqual(model.broken, []);
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
  await server.stop();
  model.close();
});
