/**
 * The AI SDK itself: `node ai.mjs ws://HOST:PORT`. `AbstractChat` with `WebSocketChatTransport` of npm's `ai` 7, on
 * which `useChat` runs: streaming, a tool of the browser, regenerate, an edit, a second page that resumes,
 * and the stored messages, which are those that were streamed.
 */

import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const require = createRequire(import.meta.url);
/** Imports a package that NODE_PATH names, which `import` does not look at. */
const load = (name) => import(pathToFileURL(require.resolve(name)));
const { AbstractChat, WebSocketChatTransport, lastAssistantMessageIsCompleteWithToolCalls } = await load("ai");
const { WebSocket } = require("ws");

const [address] = process.argv.slice(2);
const CHAT = `chat-${Date.now()}`;

/** A chat whose state is plain. */
class Chat extends AbstractChat {
  constructor(options) {
    const state = {
      status: "ready",
      error: undefined,
      messages: options.messages ?? [],
      pushMessage: (message) => (state.messages = [...state.messages, message]),
      popMessage: () => (state.messages = state.messages.slice(0, -1)),
      replaceMessage: (index, message) => (state.messages = state.messages.with(index, structuredClone(message))),
      snapshot: (value) => structuredClone(value),
    };
    super({ id: CHAT, ...options, state });
  }
}

const tools = [
  {
    name: "weather",
    description: "The weather at a place.",
    parameters: { type: "object", properties: { place: { type: "string" } } },
  },
];
const gauges = [];
const chats = [];
const open = (options = {}) => {
  const transport = new WebSocketChatTransport({ url: `${address}/ai`, webSocket: WebSocket, body: { tools } });
  const onData = (part) => gauges.push(part);
  const chat = new Chat({ transport, onData, ...options });
  chats.push(chat);
  return chat;
};

/** Checks that the server's messages are those that the chat has built of their chunks. */
const matchesStored = async (chat, limit = 50) => {
  const stored = [];
  let page;
  do {
    const before = stored.length > 0 ? `&before=${stored[0].id}` : "";
    const response = await fetch(`${address.replace("ws", "http")}/ai/chats/${CHAT}?limit=${limit}${before}`);
    page = await response.json();
    assert.equal(response.status, 200, JSON.stringify(page));
    assert.ok(page.length <= limit);
    stored.unshift(...page);
  } while (page.length > 0);
  assert.deepEqual(stored, JSON.parse(JSON.stringify(chat.messages)));
};

const textOf = (message) =>
  message.parts
    .filter((part) => part.type === "text")
    .map((part) => part.text)
    .join("");

const chat = open({
  sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithToolCalls,
  onToolCall: ({ toolCall }) => {
    assert.equal(toolCall.toolName, "weather");
    void chat.addToolOutput({ tool: "weather", toolCallId: toolCall.toolCallId, output: { wind: "SW 5" } });
  },
});

await chat.sendMessage({ text: "When should I start for the harbour?" });
assert.equal(chat.error, undefined);
assert.deepEqual(
  chat.messages.map(({ role }) => role),
  ["user", "assistant"],
);
const [, answer] = chat.messages;
assert.match(answer.id, /^msg_/);
assert.ok(textOf(answer).length > 0);
assert.ok(answer.metadata.usage.totalTokens > 0 && answer.metadata.sessionId);
assert.ok(gauges.some(({ type, data }) => type === "data-reseed-context" && data.maxTokens > 0));
console.log("ok an answer is streamed");

await chat.sendMessage({ text: "Use the tool weather with place=harbour" });
for (let waits = 0; waits < 200 && !(chat.status === "ready" && textOf(chat.messages.at(-1))); waits += 1) {
  await new Promise((resolve) => setTimeout(resolve, 50));
}
assert.equal(chat.error, undefined);
assert.equal(chat.messages.length, 4, "the result goes on in the same message");
const call = chat.messages[3].parts.find(({ type }) => type === "tool-weather");
assert.equal(call.state, "output-available");
assert.ok(textOf(chat.messages[3]).length > 0, "the model has answered the result");
await matchesStored(chat);
console.log("ok a tool of the browser");

const replaced = chat.messages[3].id;
await chat.regenerate();
assert.equal(chat.error, undefined);
assert.equal(chat.messages.length, 4);
assert.notEqual(chat.messages[3].id, replaced);
console.log("ok regenerate");

await chat.sendMessage({ text: "And by bike?", messageId: chat.messages[2].id });
assert.equal(chat.error, undefined);
assert.deepEqual(
  chat.messages.map(({ role }) => role),
  ["user", "assistant", "user", "assistant"],
);
await matchesStored(chat);
await matchesStored(chat, 2);
console.log("ok an edit, and the stored messages");

const before = structuredClone(chat.messages);
const running = chat.sendMessage({ text: `Tell me more. ${"And more. ".repeat(40)}` });
while (chat.status !== "streaming") await new Promise((resolve) => setTimeout(resolve, 1));
const other = open({ messages: before });
await other.resumeStream();
await running;
assert.equal(other.error, undefined);
if (other.messages.length > before.length) {
  assert.equal(other.messages.at(-1).id, chat.messages.at(-1).id, "the same message");
  assert.equal(textOf(other.messages.at(-1)), textOf(chat.messages.at(-1)));
}
await matchesStored(chat);
console.log("ok a second page resumes");

await Promise.all(chats.map((chat) => chat.dispose()));
process.exit(0);
