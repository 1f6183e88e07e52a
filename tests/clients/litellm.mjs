/**
 * LiteLLM's proxy in front of reseed and behind it: a program asks LiteLLM, which asks reseed, which asks LiteLLM,
 * which asks a scripted model. By Chat Completions and by Responses, with streams, tools, chains, and past reseed's
 * window. Usage: `node litellm.mjs RESEED LITELLM`, the server's binary and the program `litellm`. Prints one line a
 * step.
 */

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { createServer } from "node:net";
import { join } from "node:path";
import { inTemporaryFolder, start, startReseed } from "./server.mjs";
import { startModel, textOf } from "./scripted_model.mjs";

const OpenAI = createRequire(import.meta.url)("openai").default;
const [reseed, litellm] = process.argv.slice(2);

/** The names that LiteLLM knows: the model behind reseed, and reseed itself. */
const BEHIND = "behind";
const FRONT = "front";
const WINDOW_TOKENS = 8_000;
/** LiteLLM's own key; it does not start without one. */
const KEY = `sk-${randomUUID()}`;

const all = ({ messages }) => messages.map(textOf).join("\n");

function script(request) {
  const { messages, tools = [] } = request;
  const said = all(request);
  if (/^You write summaries/.test(textOf(messages[0]))) {
    return { text: `## Critical Context\n- The ${/code is \S+\./.exec(said)?.[0] ?? "sea is calm."}` };
  }
  const last = messages.at(-1);
  if (last.role === "tool") return { text: `It is ${textOf(last)}.` };
  if (tools.some((tool) => tool.function.name === "wind") && textOf(last).includes("wind")) {
    return { text: "I ask.", calls: [{ name: "wind", arguments: { place: "Genoa" } }] };
  }
  if (textOf(last).includes("What is my code?")) return { text: /code is (\S+)\./.exec(said)?.[1] ?? "unknown" };
  return { text: "Noted, and understood." };
}

/** Returns a port that was free a moment ago: LiteLLM cannot choose one itself. */
async function freePort() {
  const server = createServer();
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address();
  await new Promise((resolve) => server.close(resolve));
  return port;
}

/** Starts LiteLLM with one model: `name` for its clients, `upstream` for the server at `url`. */
async function startLiteLlm(folder, name, upstream, url) {
  const port = await freePort();
  const params = { model: `openai/${upstream}`, api_base: url, api_key: "none-needed" };
  const config = join(folder, `${name}.yaml`);
  await writeFile(config, JSON.stringify({ model_list: [{ model_name: name, litellm_params: params }] }));
  const { child, ended } = start(litellm, ["--config", config, "--host", "127.0.0.1", "--port", String(port)], {
    cwd: folder,
    env: {
      PATH: process.env.PATH,
      HOME: folder,
      LITELLM_MASTER_KEY: KEY,
      // Otherwise it fetches prices from elsewhere.
      LITELLM_LOCAL_MODEL_COST_MAP: "True",
    },
  });
  let told = "";
  const ready = new Promise((resolve) => {
    for (const stream of [child.stdout, child.stderr]) {
      stream.setEncoding("utf8").on("data", (piece) => {
        told += piece;
        if (told.includes("Uvicorn running on")) resolve(true);
      });
    }
  });
  if ((await Promise.race([ready, ended])) !== true) throw new Error(`LiteLLM did not start: ${told}`);
  return {
    url: `http://127.0.0.1:${port}/v1`,
    told: () => told,
    async stop() {
      child.kill();
      await ended;
    },
  };
}

await inTemporaryFolder(async (folder) => {
  const model = await startModel({ name: BEHIND, windowTokens: WINDOW_TOKENS, script });
  const behind = await startLiteLlm(folder, BEHIND, BEHIND, model.url);
  const server = await startReseed(reseed, folder, {
    OPENAI_BASE_URL: behind.url,
    OPENAI_API_KEY: KEY,
    MODEL: BEHIND,
    CONTEXT_WINDOW: String(WINDOW_TOKENS),
  });
  const front = await startLiteLlm(folder, FRONT, BEHIND, `${server.url}/v1`);
  const client = new OpenAI({ baseURL: front.url, apiKey: KEY, maxRetries: 0 });
  const parameters = { type: "object", properties: { place: { type: "string" } }, required: ["place"] };

  const steps = {
    async "chat completions go on, and stream"() {
      const messages = [{ role: "user", content: "My code is K7-tango-42." }];
      const one = await client.chat.completions.create({ model: FRONT, messages });
      messages.push(one.choices[0].message, { role: "user", content: "What is my code?" });
      const two = await client.chat.completions.create({ model: FRONT, messages });
      assert.equal(two.choices[0].message.content, "K7-tango-42");
      assert.ok(two.usage.total_tokens > 0);
      let text = "";
      let usage;
      const options = { model: FRONT, messages, stream: true, stream_options: { include_usage: true } };
      for await (const chunk of await client.chat.completions.create(options)) {
        text += chunk.choices[0]?.delta?.content ?? "";
        usage = chunk.usage ?? usage;
      }
      assert.equal(text, "K7-tango-42");
      assert.ok(usage.total_tokens > 0);
    },

    async "chat completions call tools, also in a stream"() {
      const tools = [{ type: "function", function: { name: "wind", description: "Tells it.", parameters } }];
      const messages = [{ role: "user", content: "How is the wind?" }];
      const asked = await client.chat.completions.create({ model: FRONT, messages, tools });
      const [call] = asked.choices[0].message.tool_calls;
      assert.deepEqual(JSON.parse(call.function.arguments), { place: "Genoa" });
      messages.push(asked.choices[0].message, { role: "tool", tool_call_id: call.id, content: "12 knots" });
      const told = await client.chat.completions.create({ model: FRONT, messages, tools });
      assert.equal(told.choices[0].message.content, "It is 12 knots.");
      const stream = client.chat.completions.stream({ model: FRONT, messages: messages.slice(0, 1), tools });
      const final = await stream.finalChatCompletion();
      assert.equal(final.choices[0].finish_reason, "tool_calls");
      assert.equal(final.choices[0].message.tool_calls[0].function.name, "wind");
    },

    async "responses go on, stream and call tools"() {
      const one = await client.responses.create({ model: FRONT, input: "My code is K7-tango-42." });
      const asking = { model: FRONT, input: "What is my code?", previous_response_id: one.id };
      const two = await client.responses.create(asking);
      assert.equal(two.output_text, "K7-tango-42");
      const types = [];
      let text = "";
      for await (const event of await client.responses.create({ ...asking, stream: true })) {
        types.push(event.type);
        if (event.type === "response.output_text.delta") text += event.delta;
      }
      assert.equal(text, "K7-tango-42");
      assert.equal(types.at(-1), "response.completed");
      const tools = [{ type: "function", name: "wind", description: "Tells it.", parameters, strict: false }];
      const asked = await client.responses.create({ model: FRONT, input: "How is the wind?", tools });
      const call = asked.output.find((item) => item.type === "function_call");
      const input = [{ type: "function_call_output", call_id: call.call_id, output: "12 knots" }];
      const told = await client.responses.create({ model: FRONT, input, tools, previous_response_id: asked.id });
      assert.equal(told.output_text, "It is 12 knots.");
    },

    async "a list of messages grows past the window"() {
      const messages = [{ role: "user", content: "My code is K7-tango-42." }];
      for (let turn = 0; turn < 16; turn++) {
        const made = await client.chat.completions.create({ model: FRONT, messages });
        messages.push(made.choices[0].message, { role: "user", content: `Note ${turn}: ${"harbour lantern ".repeat(200)}` });
      }
      messages.push({ role: "assistant", content: "Noted." }, { role: "user", content: "What is my code?" });
      const asked = await client.chat.completions.create({ model: FRONT, messages });
      assert.equal(asked.choices[0].message.content, "K7-tango-42");
      assert.ok(JSON.stringify(messages).length / 4 > WINDOW_TOKENS);
    },

    async "refusals pass through with their status"() {
      const messages = [{ role: "user", content: "Hello." }];
      await assert.rejects(client.chat.completions.create({ model: FRONT, messages, n: 2 }), { status: 400 });
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
  await Promise.all([front.stop(), behind.stop(), server.stop()]);
  model.close();
});
