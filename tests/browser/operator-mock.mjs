/**
 * A mock server with the operator endpoints and any number of sessions, for tests of the operator's page alone. It
 * serves `src/server/web/` under the same Content-Security-Policy. Its numbers are the same in every run. Run directly,
 * it listens on a free port.
 */

import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import { extname } from "node:path";
import { CSP } from "./mock.mjs";

const WEB = new URL("../../src/server/web/", import.meta.url);
const TYPES = { ".html": "text/html; charset=utf-8", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml" };

const MODELS = ["claude-opus-4-5", "claude-haiku-4-5", "gpt-5.2", "gpt-5.2-mini", "qwen3-32b"];
const USERS = ["ann", "ben", "carla", "dmitri", "elif", "https://id.example.org/|f81d4fae", "service:shop|4711", "grace"];
const NAMES = ["Ferry to the islands", "Why is the build slow?", "Tax return 2025", "A name for the cat", "Review of the parser", "Trip to Lisbon", "Garden plan", "Regex for dates"];
const OUTCOMES = ["committed", "committed", "committed", "committed", "no_gain", "failed"];
const STEP_MS = { minute: 60_000, hour: 3_600_000, day: 86_400_000 };

/** Returns a function that returns numbers from 0 to 1, the same ones for the same seed. */
export function seeded(seed) {
  let state = seed;
  return () => {
    state = (state * 1_664_525 + 1_013_904_223) % 4_294_967_296;
    return state / 4_294_967_296;
  };
}

export class OperatorMock {
  constructor({ sessions = 240, token = null, writes = true, readsContent = true } = {}) {
    Object.assign(this, { token, writes, readsContent });
    this.now = Date.now();
    this.touched = 0;
    const random = seeded(7);
    const pick = (list) => list[Math.floor(random() ** 1.6 * list.length)];
    /** Newest first. */
    this.sessions = Array.from({ length: sessions }, (_, at) => this.make(at, random, pick));
    /** What was asked for, each as `METHOD /path?query`. */
    this.requests = [];
    /** Levers that were pulled: the same key acts once. */
    this.acts = [];
    this.answers = new Map();
    this.backup = { state: "none" };
    /** Answers this status to levers. */
    this.fails = null;
    /** What levers wait for. */
    this.held = null;
    /** The body and type of every answer, as if a proxy sent it. */
    this.proxy = null;
    /** The requests of a session, and how many of its entries a page has at most. */
    this.requestsCount = 60;
    this.requestsMax = 500;
    this.http = createServer((request, response) => void this.serve(request, response));
  }

  make(at, random, pick) {
    const open = at < 40 || random() < 0.02;
    const updated = this.now - at * 41_000 - Math.floor(random() * 30_000);
    const usageRatio = Math.min(1.04, random() ** 0.8);
    const compacted = random() < 0.4;
    const outcome = pick(OUTCOMES);
    const last = { at: new Date(updated - 60_000).toISOString(), outcome, trigger: "threshold", rung: outcome === "committed" ? "model_summary" : undefined, reductionPercent: outcome === "committed" ? 30 + random() * 40 : undefined, code: outcome === "failed" ? "upstream_overloaded" : undefined, durationMs: 2100, pausedMs: 0 };
    const state = at % 11 === 3 ? "running" : at % 37 === 5 ? "compacting" : "idle";
    return {
      sessionId: `s${String(at).padStart(5, "0")}${Math.floor(random() * 1e9).toString(36).padStart(6, "0")}q`, name: this.readsContent ? pick(NAMES) : "", owner: pick(USERS),
      createdAt: new Date(updated - 3_600_000).toISOString(), updatedAt: new Date(updated).toISOString(), entries: 4 + Math.floor(random() * 400),
      tokenCount: Math.round(usageRatio * 200_000), usageRatio, windowTokens: 200_000, state: open ? state : "idle", open,
      ...(random() < 0.9 ? { costNanoUsd: Math.floor(random() ** 3 * 4e9) } : {}),
      ...(open ? { model: pick(MODELS), strategy: random() < 0.8 ? "threshold" : "importance", compaction: { count: compacted ? 3 : 0, ...(compacted ? { last } : {}), ...(at % 23 === 7 ? { rests: "no_gain" } : {}) } } : {}),
    };
  }

  async listen(port = 0) {
    await new Promise((resolve) => this.http.listen(port, "127.0.0.1", resolve));
    return `http://127.0.0.1:${this.http.address().port}/operator`;
  }

  async close() {
    this.http.closeAllConnections();
    await new Promise((resolve) => this.http.close(resolve));
  }

  /** Changes a session, which moves to the front. */
  touch(sessionId, change) {
    const at = this.sessions.findIndex((session) => session.sessionId === sessionId);
    const [session] = this.sessions.splice(at, 1);
    this.sessions.unshift({ ...session, ...change, updatedAt: new Date((this.touched = Math.max(this.touched + 1, Date.now()))).toISOString() });
  }

  async serve(request, response) {
    const { pathname, searchParams, search } = new URL(request.url, "http://mock");
    const json = (status, body) => response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(body));
    if (!/^\/(api\/|metrics|readyz)/.test(pathname)) {
      // The modules of the page are as they are in their folders.
      const name = pathname === "/operator" ? "operator/index.html" : pathname.replace(/^\/operator\/(assets\/)?/, "");
      for (const path of [...(pathname.includes("/assets/") ? [`operator/${name}`] : []), name]) {
        const body = /^[\w/.-]+$/.test(path) && !path.includes("..") ? await readFile(new URL(path, WEB)).catch(() => null) : null;
        if (body !== null) return void response.writeHead(200, { "content-type": TYPES[extname(path)], "content-security-policy": CSP }).end(body);
      }
      return void response.writeHead(404).end();
    }
    this.requests.push(`${request.method} ${pathname}${search}`);
    if (this.token !== null && request.headers.authorization !== `Bearer ${this.token}`) return json(401, { code: "unauthenticated", message: "send a token from OPERATOR_TOKENS as `Authorization: Bearer`" });
    if (this.proxy) return void response.writeHead(200, { "content-type": this.proxy.type }).end(this.proxy.body);
    if (request.method !== "GET") {
      let text = "";
      for await (const chunk of request) text += chunk;
      await this.held;
      return this.act(request, pathname, text ? JSON.parse(text) : undefined, json);
    }
    if (pathname === "/metrics") return void response.writeHead(200, { "content-type": "text/plain" }).end(METRICS);
    if (pathname === "/readyz") return void response.writeHead(200, { "content-type": "text/plain" }).end("ready\n");
    const answer = this.answer(pathname, searchParams);
    if (typeof answer === "string") return void response.writeHead(200, { "content-type": "text/markdown; charset=utf-8" }).end(answer);
    return answer === null ? json(404, { code: "session_not_found", message: "there is no such session" }) : json(200, answer);
  }

  act(request, pathname, body, json) {
    const key = request.headers["idempotency-key"] ?? "";
    if (key.length < 16 || key.length > 64) return json(400, { code: "invalid_field", message: "Idempotency-Key has 16 to 64 characters" });
    if (!this.writes) return json(403, { code: "forbidden", message: "this needs the scope operator.write" });
    if (this.fails) return json(this.fails, { code: "store_failed", message: "the store cannot write" });
    const known = this.answers.get(key);
    if (known) return json(200, known);
    this.acts.push({ method: request.method, path: pathname, body, key });
    const lever = pathname.split("/").at(-1);
    const answers = {
      compact: { type: "accepted", jobId: "job-1" }, undo: { undone: true }, cancel: {}, drain: { node: "self" },
      preview: { previewId: "job-2", tokensBefore: 150_000, tokensAfter: 60_000, rung: "model_summary", failedRungs: [{ rung: "provider_native", reason: "timeout" }], summary: this.readsContent ? "The user asked for a ferry. ".repeat(20) : "" },
      close: pathname.includes("/users/") ? { sockets: 2, sessions: 5 } : { sockets: 1 },
    };
    if (request.method === "DELETE" && pathname.startsWith("/api/sessions/")) this.sessions = this.sessions.filter(({ sessionId }) => sessionId !== pathname.split("/")[3]);
    if (lever === "backup") this.backup = { state: "running", file: "reseed-2026-11-30.db", pages: 1000, pagesDone: 250 };
    const answer = answers[lever] ?? (request.method === "DELETE" && pathname.startsWith("/api/users/") ? { sessions: 5, usageRows: 812, tickets: 1, sockets: 2, search: { files: 3, tables: 14, found: 0 } } : {});
    this.answers.set(key, answer);
    return json(lever === "compact" || lever === "drain" || lever === "backup" ? 202 : 200, answer);
  }

  answer(pathname, parameters) {
    const [, , name, id = "", part] = pathname.split("/");
    if (name === "sessions" && id === "") {
      const [limit, from] = [Number(parameters.get("limit") ?? 100), Number(parameters.get("cursor") ?? 0)];
      const items = this.sessions.slice(from, from + limit);
      const nextCursor = from + limit < this.sessions.length ? String(from + limit) : undefined;
      return { items, nextCursor, openSessions: this.sessions.filter(({ open }) => open).length, operator: { name: "mock", readsContent: this.readsContent, writes: this.writes } };
    }
    if (name === "sessions") return this.aboutSession(id, part, parameters);
    if (name === "usage") return this.usage(parameters);
    if (name === "minutes") return this.minutes(parameters);
    if (name === "users") return { user: decodeURIComponent(id), sessions: { count: 42, open: 3 }, usage: { ...sums(0.5, 40), user: id }, sockets: 2, class: "pro" };
    if (name === "budgets") return { items: parameters.get("owner") ? BUDGETS.map((budget) => ({ ...budget, budget: "user" })) : BUDGETS, class: "pro" };
    if (name === "nodes") return { items: NODES };
    if (name === "mcp") return MCP;
    if (name === "backup") {
      const before = this.backup;
      if (before.state === "running") this.backup = before.pagesDone >= 750 ? { ...before, state: "done", pagesDone: 1000 } : { ...before, pagesDone: before.pagesDone + 250 };
      return before;
    }
    return null;
  }

  aboutSession(id, part, parameters) {
    const session = this.sessions.find(({ sessionId }) => sessionId === id);
    if (!session) return null;
    if (part === "context" && parameters.get("format")) return `# system\n\n${session.tokenCount} tokens`;
    if (part === "context") {
      const shares = { system: 0.04, tools: 0.11, summary: 0.12, user: 0.14, assistant: 0.31, reasoning: 0, toolResults: 0.24, images: 0.03, uncached: 0.01 };
      const breakdown = Object.fromEntries(Object.entries(shares).map(([kind, share]) => [kind, Math.round(share * session.tokenCount)]));
      const tokenCount = Object.values(breakdown).reduce((sum, tokens) => sum + tokens, 0);
      const breaker = session.compaction?.rests ? { reason: "no_gain", failures: 2, retryAboveTokens: 190_000, message: "" } : undefined;
      return { sessionId: id, tokenCount, maxTokens: 200_000, breakdown, compactAtTokens: 160_000, prepareAtTokens: 120_000, reservedTokens: 4_000, cachedTokens: Math.round(tokenCount * 0.8), strategy: session.strategy ?? "threshold", transcriptLength: session.entries, compactions: 2, breaker };
    }
    if (part === "requests") {
      const all = requests(id, this.requestsCount);
      const to = parameters.get("before") ? all.findIndex(({ entryId }) => entryId === parameters.get("before")) : all.length;
      const from = Math.max(0, to - Math.min(this.requestsMax, Number(parameters.get("limit"))));
      return { items: all.slice(from, to), more: from > 0, oldest: all[from]?.entryId };
    }
    if (part === "tree") return tree();
    return null;
  }

  usage(parameters) {
    const [by, step, owner] = [parameters.get("by") ?? "user", parameters.get("step"), parameters.get("owner")];
    const keys = { total: [""], user: USERS, model: MODELS }[by];
    const from = Date.parse(parameters.get("from"));
    const stepMs = STEP_MS[step] ?? this.now - from;
    const items = [];
    for (let time = Math.floor(from / stepMs) * stepMs; time <= this.now; time += stepMs) {
      keys.forEach((key, at) => {
        // The total of each period is the sum over all users, and over all models.
        const parts = by === "user" ? [at] : owner ? [USERS.indexOf(owner)] : USERS.map((_, user) => user);
        const share = by === "model" ? [0.5, 0.22, 0.15, 0.08, 0.05][at] : 1;
        const weight = parts.reduce((sum, user) => sum + 1 / (1.5 + user), 0) * (0.65 + 0.35 * Math.sin(time / stepMs / 4)) * (stepMs / 60_000) * share;
        items.push({ ...(by === "total" ? {} : { [by]: key }), ...(step ? { from: new Date(time).toISOString() } : {}), ...sums(weight, time / stepMs) });
      });
      if (!step) break;
    }
    return { items };
  }

  minutes(parameters) {
    const items = [];
    for (let time = Math.ceil(Date.parse(parameters.get("from")) / 60_000) * 60_000; time <= this.now; time += 60_000) {
      const wave = Math.sin(time / 600_000);
      items.push({
        minute: new Date(time).toISOString(), node: 1, compactions: { committed: Math.round(4 + 3 * wave), no_gain: time % 420_000 === 0 ? 1 : 0, failed: time % 660_000 === 0 ? 2 : 0 },
        waiting: Math.max(0, Math.round(9 * wave - 3)), pauses: { count: 1, totalMs: Math.max(0, Math.round(4_000 * wave)) }, failures: { turns: time % 540_000 === 0 ? 3 : 0, requests: time % 300_000 === 0 ? 2 : 0, store: 0 }, sessionsOpen: 40, connections: 55,
      });
    }
    return { items };
  }
}

/** Returns sums of usage of this size. */
function sums(weight, at) {
  const inputTokens = Math.round(weight * 90_000);
  const cachedTokens = Math.round(inputTokens * (0.68 + 0.14 * Math.sin(at / 5)));
  return {
    requests: Math.ceil(weight * 6), estimatedRequests: 0, unpricedRequests: 0, inputTokens, cachedTokens, cacheWriteTokens: Math.round(inputTokens * 0.06), cacheWriteHourTokens: 0,
    outputTokens: Math.round(weight * 5_000), reasoningTokens: Math.round(weight * 1_700), costNanoUsd: Math.round(weight * 190_000_000), estimatedCostNanoUsd: 0,
  };
}

/** Returns this many requests with two compactions between them. */
function requests(id, count) {
  const entries = [];
  let sent = 6_000;
  for (let at = 0; at < count; at += 1) {
    const timestamp = new Date(Date.UTC(2026, 10, 29, 9, at)).toISOString();
    if (at === 24 || at === 46) {
      const failedRungs = at === 46 ? [{ rung: "model_summary", reason: "timeout" }] : [];
      entries.push({ type: "compaction", entryId: `c${at}`, timestamp, tokensBefore: sent, tokensAfter: 52_000, trigger: "threshold", durationMs: 8_400, rung: at === 46 ? "extract" : "model_summary", failedRungs, summaryUsage: { inputTokens: sent, cachedTokens: 0, outputTokens: 900, costNanoUsd: 41_000_000, source: "reported" } });
      sent = 52_000;
    }
    const prefixTokens = at === 0 ? 0 : at === 24 || at === 46 ? 8_000 : sent - 2_500;
    const broke = at === 24 || at === 46 ? { part: `message:${id}`, reason: "compaction", lostTokens: 90_000 } : undefined;
    entries.push({ type: "message", role: "assistant", entryId: `e${at}`, timestamp, model: "claude-opus-4-5", usage: { inputTokens: sent, cachedTokens: at % 9 === 8 ? 0 : Math.max(0, prefixTokens - 600), prefixTokens, outputTokens: 640, costNanoUsd: 31_000_000, source: "reported" }, receipt: { request: 1, tokens: sent, prefixTokens, broke, provider: { verdict: broke ? "miss" : "hit", agrees: true, part: broke ? "messages" : undefined } } });
    sent += 4_600;
  }
  return entries;
}

/** Returns a tree of some branches. */
function tree() {
  const nodes = [];
  const grow = (parentId, count, prefix) => {
    for (let at = 0; at < count; at += 1) {
      const type = at === 24 || at === 46 ? "compaction" : at % 2 === 0 ? "message:user" : "message:assistant";
      nodes.push({ entryId: `${prefix}${at}`, parentId, type, preview: "", timestamp: new Date(0).toISOString(), childCount: 1 });
      parentId = `${prefix}${at}`;
    }
  };
  grow(null, 62, "a");
  grow("a9", 14, "b");
  grow("b5", 6, "c");
  grow("a31", 22, "d");
  return { nodes, leafId: "a61", asOfSeq: 200, more: false };
}

const BUDGETS = [
  { budget: "deployment", per: "month", spentNanoUsd: 1.412e12, spentTokens: 0, reservedNanoUsd: 3.2e8, reservedTokens: 0, usedPercent: 70.6, limitNanoUsd: 2e12, refillsAt: "2026-12-01T00:00:00Z" },
  { budget: "deployment", per: "day", spentNanoUsd: 9.1e10, spentTokens: 41_000_000, reservedNanoUsd: 0, reservedTokens: 0, usedPercent: 91, limitNanoUsd: 1e11, limitTokens: 90_000_000, refillsAt: "2026-12-01T00:00:00Z" },
];

const NODES = [
  { node: 1, name: "chat-1", address: "ws://10.0.0.11:8080", version: "0.9.0", state: "living", sessions: 212, connections: 260, leaseMs: 5000, beatAgeMs: 410, self: true },
  { node: 2, name: "chat-2", address: "ws://10.0.0.12:8080", version: "0.9.0", state: "draining", sessions: 31, connections: 28, leaseMs: 5000, beatAgeMs: 900, self: false },
  { node: 3, name: "chat-3", address: "ws://10.0.0.13:8080", version: "0.9.0", state: "silent", sessions: 0, connections: 0, leaseMs: 5000, beatAgeMs: 41_000, self: false },
  { node: 4, name: "chat-4", address: "ws://10.0.0.14:8080", version: "0.9.0", state: "living", sessions: 187, connections: 201, leaseMs: 5000, beatAgeMs: 120, self: false },
];

const MCP = {
  tokens: 4120,
  items: [
    { name: "shell", state: "ready", restarts: 0, transport: "stdio", software: "reseed-shell 0.9.0", tools: [{ name: "run" }, { name: "edit" }], tokens: 1220 },
    { name: "tickets", state: "failing", failure: "unreachable", error: "does not answer: connection refused", restarts: 7, transport: "http", tools: [], tokens: 0, leftOut: ["close: its schema is too large"] },
  ],
};

const METRICS = `# HELP reseed_build_info Always 1.
# TYPE reseed_build_info gauge
reseed_build_info{version="0.9.0"} 1
reseed_connections{dialect="reseed"} 260
reseed_connections{dialect="none"} 3
reseed_sessions_open 212
reseed_model_requests_waiting 4
reseed_breakers_open{reason="no_gain"} 2
reseed_breakers_open{reason="failures"} 0
reseed_store_commits_total{outcome="failed"} 0
reseed_hook_calls_total{kind="webhook",point="context",outcome="ok"} 4210
reseed_hook_calls_total{kind="webhook",point="context",outcome="hook_timeout"} 12
reseed_hook_calls_total{kind="client",point="message",outcome="ok"} 88
reseed_hook_calls_total{kind="rust",point="message",outcome="ok"} 0
reseed_hook_duration_seconds_sum{kind="webhook",point="context"} 168.9
reseed_hook_duration_seconds_count{kind="webhook",point="context"} 4222
reseed_hook_duration_seconds_sum{kind="client",point="message"} 1.2
reseed_hook_duration_seconds_count{kind="client",point="message"} 88
`;

if (process.argv[1] === new URL(import.meta.url).pathname) console.log(await new OperatorMock({ sessions: Number(process.argv[2] ?? 240) }).listen());
