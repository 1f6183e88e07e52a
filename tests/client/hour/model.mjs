/**
 * A model server that keeps an account of its own. It speaks Chat Completions and Anthropic's Messages, streams,
 * reports usage of every class, and fails as model servers do. Every text of the users has a tag (`u017c2`: the second
 * chat of user 17), and every answer its number (`#42`), so that each request is known without the server's help.
 */

import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import { seeded } from "../seeded.mjs";

/** Tokens that fit into a request. A few turns fill them. */
export const WINDOW = 2_000;
/** The most tokens of an answer. */
export const OUTPUT_MAX = 400;

/** Words of an answer that waits for its user to stop it: half a minute. */
const HELD_MAX = 600;

/** Dollars per million tokens: input, cached, output, written to the cache, written for an hour. */
export const PRICES = {
  swift: [2, 0.5, 8, 2, 2],
  clerk: [1, 0.25, 4, 1, 1],
  "anthropic/sage": [3, 0.3, 15, 3.75, 6],
};

/** The classes of tokens, as the table of usage names them. */
export const CLASSES = ["input", "cached", "cache_write", "cache_write_hour", "output", "reasoning"];

/** Returns the cost in billionths of a dollar. */
export function costOf(model, { input, cached, cache_write, cache_write_hour, output }) {
  const nano = PRICES[model].map((dollars) => Math.round(dollars * 1_000));
  const fresh = input - cached - cache_write;
  const written = cache_write - cache_write_hour;
  return fresh * nano[0] + cached * nano[1] + output * nano[2] + written * nano[3] + cache_write_hour * nano[4];
}

const WORDS = "harbour lantern copper meadow engine window river paper winter garden signal bridge carpet mirror".split(" ");
/** Returns a text of this many words. */
export const words = (random, count) =>
  Array.from({ length: count }, () => WORDS[Math.floor(random() * WORDS.length)]).join(" ");

const tokensOf = (value) => Math.ceil(Buffer.byteLength(JSON.stringify(value)) / 4);

/** What may happen to a request, with its share. The rest is answered. */
const FAULTS = [
  ["error", 0.02],
  ["limited", 0.02],
  ["unreachable", 0.01],
  ["breaks", 0.03],
  ["says_error", 0.01],
  ["cut_after_report", 0.02],
  ["empty", 0.01],
  ["slow", 0.03],
];

/** The model server. */
export class Model {
  /**
   * Every request, in order of arrival. `state` is `running`, `reported`, `refused`, `broken` or `left` (by the
   * client).
   */
  requests = [];
  /** What no server should send. */
  wrong = [];
  /** The process whose answers do not end now, by its API key. */
  held = null;
  /** Called with each request that was just reported in full. */
  onReport = () => undefined;

  static async start(seed) {
    const model = new Model();
    model.random = seeded(seed);
    model.server = createServer((request, response) => {
      model.#take(request, response).catch((error) => {
        model.wrong.push(error.message);
        if (!response.headersSent) response.writeHead(400).end(JSON.stringify({ error: { message: error.message } }));
      });
    });
    // Connections that wait longer than the servers' own limit are closed by the servers, so that none is lost.
    model.server.keepAliveTimeout = 600_000;
    model.server.listen(0, "127.0.0.1");
    await once(model.server, "listening");
    model.url = `http://127.0.0.1:${model.server.address().port}`;
    return model;
  }

  close() {
    this.server.close();
    this.server.closeAllConnections();
  }

  async #take(request, response) {
    if (request.method === "GET") {
      const data = Object.keys(PRICES).map((id) => ({ id: id.replace("anthropic/", ""), object: "model" }));
      return response.end(JSON.stringify({ object: "list", data }));
    }
    let text = "";
    for await (const piece of request) text += piece;
    const body = JSON.parse(text);
    const isMessages = request.url === "/v1/messages";
    if (!isMessages) assert.equal(request.url, "/v1/chat/completions");
    const asked = this.#read(request, body, isMessages);
    this.requests.push(asked);
    const left = () => {
      if (asked.state === "running") Object.assign(asked, { state: "left", endedAt: Date.now() });
    };
    response.on("close", left);
    await this.#answer(asked, (isMessages ? messages : chat)(body.model), response);
  }

  /** Reads whose request it is, and what it is for. */
  #read({ headers }, body, isMessages) {
    const tags = new Set(JSON.stringify([body.messages, body.system]).match(/u\d{3}c\d+/g));
    assert.equal(tags.size, 1, `a request has the texts of ${[...tags].join(" and ") || "nobody"}: ${JSON.stringify(body).slice(0, 4_000)}`);
    const [tag] = tags;
    const said = body.messages.map(({ role, content }) => ({
      role,
      text: typeof content === "string" ? content : (content ?? []).map((part) => part.text ?? "").join("\n"),
      isResult: role === "tool" || (Array.isArray(content) && content.some((part) => part.type === "tool_result")),
    }));
    const last = said.at(-1);
    const system = isMessages ? JSON.stringify(body.system ?? "") : said[0].text;
    let purpose = "turn";
    if (system.includes("You write summaries") || last.text.startsWith("The conversation stops here")) purpose = "summary";
    if (purpose === "summary" && last.text.includes("PREVIEW")) purpose = "preview";
    if (purpose === "summary" && last.text.includes("BRANCH")) purpose = "branch";
    if (body.max_tokens === 0) purpose = "prewarm";
    return {
      number: this.requests.length + 1,
      key: (headers["x-api-key"] ?? headers.authorization).replace("Bearer ", ""),
      owner: tag.slice(0, 4),
      tag,
      model: isMessages ? `anthropic/${body.model}` : body.model,
      purpose,
      // Earlier inputs come before it, in a summary or because they were not answered.
      mark: /\[(\w+)\]/.exec(last.text.split("\n").at(-1))?.[1],
      isResult: last.isResult,
      prompt: tokensOf(body.messages) + tokensOf(body.tools ?? []) + tokensOf(body.system ?? ""),
      begunAt: Date.now(),
      state: "running",
    };
  }

  #fault() {
    let at = this.random();
    return FAULTS.find(([, share]) => (at -= share) < 0)?.[0];
  }

  async #answer(asked, api, response) {
    const fault = this.#fault();
    const refuse = (status, type, message) => {
      asked.state = "refused";
      response.writeHead(status, { "content-type": "application/json" });
      response.end(JSON.stringify({ type: "error", error: { type, message } }));
    };
    if (asked.prompt > WINDOW) {
      return refuse(400, "invalid_request_error", `prompt is too long: ${asked.prompt} tokens > ${WINDOW} maximum`);
    }
    if (fault === "error") return refuse(500, "api_error", "an internal error");
    if (fault === "limited") return refuse(429, "rate_limit_error", "slow down");
    if (fault === "unreachable") {
      asked.state = "refused";
      return response.socket.destroy();
    }
    const { random } = this;
    const isSummary = ["summary", "preview", "branch"].includes(asked.purpose);
    const calls = asked.purpose === "turn" && asked.mark === "look" && !asked.isResult;
    const holds = asked.purpose === "turn" && asked.mark === "hold";
    let text = `${asked.tag} #${asked.number} ${words(random, 20 + Math.floor(random() * 60))}`;
    if (isSummary) text = summary(text);
    if (fault === "empty" || asked.purpose === "prewarm" || calls) text = "";
    const call = calls ? { id: `call_${asked.number}`, name: "look", arguments: `{"place":"${asked.tag}"}` } : null;
    const cached = Math.floor(asked.prompt * random() * 0.8);
    const cache_write = api.writesCache ? Math.floor((asked.prompt - cached) * random()) : 0;
    const reasoning = random() < 0.3 ? Math.floor(random() * 60) : 0;
    asked.tokens = {
      input: asked.prompt,
      cached,
      cache_write,
      cache_write_hour: Math.floor(cache_write * random()),
      // Models end an answer with a token of its own.
      output: 1 + (text ? tokensOf(text) : 0) + (call ? tokensOf(call) : 0) + reasoning,
      reasoning,
    };
    if (asked.purpose === "prewarm") Object.assign(asked.tokens, { output: 0, reasoning: 0 });
    const report = async () => {
      while (this.held === asked.key) await sleep(20);
      if (response.destroyed) return false;
      // Noted first, because a client may act upon the report before this function goes on.
      Object.assign(asked, { state: "reported", endedAt: Date.now(), cost: costOf(asked.model, asked.tokens) });
      return true;
    };
    if (asked.purpose === "prewarm") {
      if (await report()) response.end(api.whole(asked.tokens));
      return;
    }
    response.writeHead(200, { "content-type": "text/event-stream" });
    response.write(api.begin(asked.tokens, text !== ""));
    const pieces = text.match(/(\S+\s*){1,8}/g) ?? [];
    const breaks = (fault === "breaks" || fault === "says_error") && pieces.length > 1;
    for (const piece of breaks ? pieces.slice(0, Math.ceil(pieces.length / 2)) : pieces) {
      response.write(api.text(piece));
      await sleep((fault === "slow" ? 100 : 3) + random() * 25);
      if (response.destroyed) return;
    }
    // If the user cannot stop it, because a server is gone, it ends by itself.
    for (let held = 0; holds && held < HELD_MAX && !response.destroyed; held += 1) {
      response.write(api.text("and "));
      await sleep(50);
    }
    if (response.destroyed) return;
    if (breaks) {
      Object.assign(asked, { state: "broken", endedAt: Date.now() });
      if (fault === "says_error") response.end(api.error());
      else response.socket.destroy();
      return;
    }
    if (!(await report())) return;
    if (call) response.write(api.call(call));
    response.write(api.report(asked.tokens, calls));
    if (fault === "cut_after_report") response.socket.end();
    else response.end(api.end());
    this.onReport(asked);
  }
}

/** Returns a summary in the form that is asked for. */
const summary = (text) =>
  `## Goal\n- Talk about the harbour\n\n## Constraints & Preferences\n- none\n\n## Progress\n### Done\n- none\n` +
  `### In Progress\n- none\n### Blocked\n- none\n\n## Key Decisions\n- none\n\n## Next Steps\n- none\n\n` +
  `## Critical Context\n- ${text}`;

const event = (value, name) => `${name ? `event: ${name}\n` : ""}data: ${JSON.stringify(value)}\n\n`;

/** The pieces of a streamed answer of Chat Completions. */
function chat(model) {
  const chunk = (fields) => event({ id: "c", object: "chat.completion.chunk", model, ...fields });
  const choice = (delta, finish_reason = null) => chunk({ choices: [{ index: 0, delta, finish_reason }] });
  return {
    writesCache: false,
    begin: () => choice({ role: "assistant", content: "" }),
    text: (content) => choice({ content }),
    call: ({ id, ...call }) => choice({ tool_calls: [{ index: 0, id, type: "function", function: call }] }),
    error: () => event({ error: { message: "an internal error", type: "server_error" } }),
    report({ input, cached, output, reasoning }, isCall) {
      const usage = {
        prompt_tokens: input,
        prompt_tokens_details: { cached_tokens: cached },
        completion_tokens: output,
        completion_tokens_details: { reasoning_tokens: reasoning },
      };
      return choice({}, isCall ? "tool_calls" : "stop") + chunk({ choices: [], usage });
    },
    end: () => "data: [DONE]\n\n",
  };
}

/** The pieces of a streamed answer of Messages, which has one block at most. */
function messages(model) {
  const send = (type, fields) => event({ type, ...fields }, type);
  const usageOf = (tokens, output_tokens) => ({
    input_tokens: tokens.input - tokens.cached - tokens.cache_write,
    cache_read_input_tokens: tokens.cached,
    cache_creation_input_tokens: tokens.cache_write,
    cache_creation: {
      ephemeral_5m_input_tokens: tokens.cache_write - tokens.cache_write_hour,
      ephemeral_1h_input_tokens: tokens.cache_write_hour,
    },
    output_tokens,
    output_tokens_details: { thinking_tokens: tokens.reasoning },
  });
  const message = (tokens, output, stop_reason) => ({
    ...{ id: "msg_1", type: "message", role: "assistant", model, content: [], stop_reason, stop_sequence: null },
    usage: usageOf(tokens, output),
  });
  const block = (content_block) => send("content_block_start", { index: 0, content_block });
  const delta = (delta) => send("content_block_delta", { index: 0, delta });
  return {
    writesCache: true,
    /** The whole answer to a request that fills the cache, which is not streamed. */
    whole: (tokens) => JSON.stringify(message(tokens, tokens.output, "max_tokens")),
    begin: (tokens, hasText) =>
      send("message_start", { message: message(tokens, 1, null) }) + (hasText ? block({ type: "text", text: "" }) : ""),
    text: (text) => delta({ type: "text_delta", text }),
    call: ({ id, name, arguments: partial_json }) =>
      block({ type: "tool_use", id, name, input: {} }) + delta({ type: "input_json_delta", partial_json }),
    error: () => send("error", { error: { type: "api_error", message: "an internal error" } }),
    report(tokens, isCall) {
      const ended = { delta: { stop_reason: isCall ? "tool_use" : "end_turn", stop_sequence: null } };
      const end = send("content_block_stop", { index: 0 });
      return end + send("message_delta", { ...ended, usage: usageOf(tokens, tokens.output) });
    },
    end: () => send("message_stop", {}),
  };
}
