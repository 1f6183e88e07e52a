/**
 * A model server for tests with programs: it speaks Chat Completions, checks every request strictly, and answers as a
 * script says.
 *
 * The script is called with each request and returns `{ text }`, `{ calls: [{ name, arguments }] }`, or both. A request
 * that breaks a rule of real model servers, or is larger than the window, is answered with status 400 and noted in
 * `broken`; a test ends with `assert.deepEqual(model.broken, [])`.
 */

import assert from "node:assert/strict";
import { createServer } from "node:http";

/** Bytes of a request's messages that count as one token. */
const BYTES_PER_TOKEN = 4;

/**
 * Starts a model server on a free port.
 * @param {{ name: string, windowTokens: number, script: (request: object) => object }} options
 */
export async function startModel({ name, windowTokens, script }) {
  const requests = [];
  const broken = [];
  let calls = 0;

  const server = createServer(async (request, response) => {
    let body = "";
    for await (const chunk of request) body += chunk;
    const reply = (status, value) => {
      response.writeHead(status, { "content-type": "application/json" });
      response.end(JSON.stringify(value));
    };
    if (request.method === "GET" && request.url === "/v1/models") {
      return reply(200, { object: "list", data: [{ id: name, object: "model", context_length: windowTokens }] });
    }
    try {
      assert.equal(`${request.method} ${request.url}`, "POST /v1/chat/completions");
      const asked = JSON.parse(body);
      requests.push(asked);
      check(asked, name, windowTokens);
      const { text = "", calls: wanted = [] } = script(asked);
      const numbered = wanted.map((call) => ({ id: `call_${++calls}`, ...call }));
      const usage = usageOf(asked, text);
      if (asked.stream) stream(response, { name, text, calls: numbered, usage });
      else reply(200, whole({ name, text, calls: numbered, usage }));
    } catch (error) {
      broken.push(error.message);
      reply(400, { error: { message: error.message, type: "invalid_request_error", code: error.code ?? null } });
    }
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    url: `http://127.0.0.1:${server.address().port}/v1`,
    requests,
    broken,
    close() {
      server.close();
      server.closeAllConnections();
    },
  };
}

/** All text that a message has, whatever the form of its content. */
export function textOf({ content }) {
  if (typeof content === "string") return content;
  return (content ?? []).map((part) => part.text ?? "").join("");
}

const tokensOf = (value) => Math.ceil(Buffer.byteLength(JSON.stringify(value)) / BYTES_PER_TOKEN);

/** Throws if a real model server would refuse the request. */
function check({ model, messages, tools }, name, windowTokens) {
  assert.equal(model, name);
  assert.ok(messages.length > 0, "there are no messages");
  const names = (tools ?? []).map((tool) => {
    assert.equal(tool.type, "function");
    assert.match(tool.function.name, /^[a-zA-Z0-9_-]{1,64}$/);
    return tool.function.name;
  });
  assert.equal(new Set(names).size, names.length, `tools have the same name: ${names}`);
  let open = [];
  for (const message of messages) {
    if (message.role === "tool") {
      assert.ok(open.includes(message.tool_call_id), `the result of ${message.tool_call_id} follows no call of it`);
      open = open.filter((id) => id !== message.tool_call_id);
      continue;
    }
    assert.deepEqual(open, [], "calls have no result");
    assert.ok(["system", "developer", "user", "assistant"].includes(message.role), `a role is ${message.role}`);
    open = (message.tool_calls ?? []).map((call) => call.id);
    for (const call of message.tool_calls ?? []) JSON.parse(call.function.arguments);
    assert.ok(textOf(message) || open.length > 0 || hasImage(message), `a message of the ${message.role} is empty`);
  }
  assert.deepEqual(open, [], "calls have no result");
  assert.notEqual(messages.at(-1).role, "assistant", "the last message is the model's own");
  const size = tokensOf(messages) + tokensOf(tools ?? []);
  if (size > windowTokens) {
    const message = `This model's maximum context length is ${windowTokens} tokens, but the messages are ${size} tokens.`;
    throw Object.assign(new Error(message), { code: "context_length_exceeded" });
  }
}

const hasImage = ({ content }) => Array.isArray(content) && content.some((part) => part.type === "image_url");

function usageOf({ messages, tools }, text) {
  const prompt = tokensOf(messages) + tokensOf(tools ?? []);
  const completion = tokensOf(text);
  return { prompt_tokens: prompt, completion_tokens: completion, total_tokens: prompt + completion };
}

const finishReason = (calls) => (calls.length > 0 ? "tool_calls" : "stop");

const callsOf = (calls) =>
  calls.map(({ id, name, arguments: given }, index) => ({
    index,
    id,
    type: "function",
    function: { name, arguments: JSON.stringify(given) },
  }));

function whole({ name, text, calls, usage }) {
  const message = { role: "assistant", content: text || null };
  if (calls.length > 0) message.tool_calls = callsOf(calls).map(({ index: _, ...call }) => call);
  const choices = [{ index: 0, message, finish_reason: finishReason(calls) }];
  return { id: "chatcmpl-1", object: "chat.completion", created: 1, model: name, choices, usage };
}

function stream(response, { name, text, calls, usage }) {
  response.writeHead(200, { "content-type": "text/event-stream" });
  const send = (fields) => {
    const chunk = { id: "chatcmpl-1", object: "chat.completion.chunk", created: 1, model: name, ...fields };
    response.write(`data: ${JSON.stringify(chunk)}\n\n`);
  };
  const choice = (delta, finish_reason = null) => send({ choices: [{ index: 0, delta, finish_reason }] });
  choice({ role: "assistant", content: "" });
  for (const word of text.match(/\S+\s*/g) ?? []) choice({ content: word });
  for (const call of callsOf(calls)) choice({ tool_calls: [call] });
  choice({}, finishReason(calls));
  send({ choices: [], usage });
  response.end("data: [DONE]\n\n");
}
