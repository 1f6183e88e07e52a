/**
 * npm's `@anthropic-ai/sdk` and Python's `anthropic` read what the tests' scripted Messages server sends, so that the
 * script is true. The bytes are those of `tests/fixtures/anthropic.json`.
 * Usage: `node anthropic.mjs PYTHON`. Prints one line a step.
 */

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { createServer } from "node:net";

const require = createRequire(import.meta.url);
const Anthropic = require("@anthropic-ai/sdk").default;

const cases = JSON.parse(readFileSync(new URL("../fixtures/anthropic.json", import.meta.url), "utf8"));

/** The blocks, the reason for the end and the usage that each stream has; `null` for one that fails. */
const expected = {
  text: ["text:Fair winds.", "end_turn", 100],
  tools: ['text:I look.', 'tool_use:{"at":1.5}', "tool_use:{}", "tool_use", 100],
  thinking: ["thinking:They ask.", "redacted_thinking:eHh4", "text:Yes.", "end_turn", 100],
  cached: ["text:Yes.", "end_turn", 10, 60, 30, 15],
  length: ["text:Half", "max_tokens", 100],
  refusal: ["text:Half", "refusal", 100],
  full: ["text:Half", "model_context_window_exceeded", 100],
  paused: ["text:I search.", 'server_tool_use:{"query":"x"}', "pause_turn", 100],
  broken: null,
  overloaded: null,
};

/** Sends the bytes of the case that a request names as its model. */
const server = createServer((socket) => {
  let request = "";
  socket.on("error", () => undefined);
  socket.on("data", (data) => {
    request += data;
    const named = cases.find(({ name }) => request.includes(`"model":"${name}"`));
    // Without the header, a client may send its next request over the connection that is being closed.
    if (named) socket.end(named.response.replace("\r\n", "\r\nconnection: close\r\n"));
  });
});
await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
const baseURL = `http://127.0.0.1:${server.address().port}`;

/** Describes a message as `expected` does. */
function described({ content, stop_reason, usage }) {
  const blocks = content.map((block) => {
    const said = block.text ?? block.thinking ?? block.data ?? JSON.stringify(block.input);
    if (block.type === "thinking") assert.match(block.signature, /^EuYB/);
    return `${block.type}:${said}`;
  });
  const { cache_read_input_tokens: read, cache_creation_input_tokens: written, cache_creation } = usage;
  const cache = read ? [read, written, cache_creation.ephemeral_1h_input_tokens] : [];
  return [...blocks, stop_reason, usage.input_tokens, ...cache];
}

assert.deepEqual(cases.map(({ name }) => name), Object.keys(expected));
const client = new Anthropic({ baseURL, apiKey: "none-needed", maxRetries: 0 });
for (const { name } of cases) {
  const messages = [{ role: "user", content: "Hello" }];
  const reading = client.messages.stream({ model: name, max_tokens: 100, messages }).finalMessage();
  if (expected[name]) assert.deepEqual(described(await reading), expected[name], name);
  else await assert.rejects(reading, name === "overloaded" ? Anthropic.OverloadedError ?? Anthropic.APIError : Anthropic.APIError);
  console.log(`ok npm reads the stream: ${name}`);
}

const python = spawn(process.argv[2], ["anthropic_streams.py", baseURL, JSON.stringify(expected)], { stdio: "inherit" });
const status = await new Promise((resolve) => python.on("exit", resolve));
server.close();
assert.equal(status, 0);
