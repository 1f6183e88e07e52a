/**
 * The servers: nodes, circuit breakers, hooks, MCP servers, and the levers that concern all: drain and backup.
 *
 * @typedef {object} Node
 * @property {number} node
 * @property {string} name
 * @property {string} [address]
 * @property {string} version
 * @property {string} state
 * @property {number} sessions
 * @property {number} connections
 * @property {number} beatAgeMs
 * @property {number} leaseMs
 * @property {boolean} self
 *
 * @typedef {import("reseed-protocol").ToolServer & McpDetails} McpServer
 * @typedef {{ error?: string, software?: string, transport?: string, tools: unknown[], tokens: number }} McpDetails
 */

import { ago, el, number, span } from "../dom.js";
import { breakerReason, count } from "./format.js";
import { attempt, card, leverButtons, meter, paced, put, reasonOf, said, table, tiles } from "./parts.js";
import { hooksOf, parseMetrics, sumOf } from "./prometheus.js";

/** Rows of a list; there is no use in more. */
const ROWS_MAX = 50;
/** Milliseconds between two questions for the progress of a backup. */
const BACKUP_MS = 1_000;
/** Milliseconds between two readings of what seldom changes: MCP servers, metrics and readiness. */
const READ_MS = 30_000;

/** What draining does first. */
const DRAINS = "It stops like on SIGTERM: no new turns start there, and running ones may finish.";

/** @type {Record<string, string>} */
const OUTCOMES = { hook_failed: "failed", hook_timeout: "timed out", hook_unavailable: "not reachable", passed_over: "passed over, too many at a time", cancelled: "cancelled" };

export class ServersView {
  /** @param {import("./main.js").App} app */
  constructor(app) {
    this.app = app;
    this.isClosed = false;
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.timer = undefined;
    this.nodes = paced(() => 0, () => this.readNodes());
    this.others = paced(() => READ_MS, () => this.readOthers());
    this.backup = paced(() => BACKUP_MS, () => this.watchBackup());
    this.facts = el("dl", { class: "tiles" });
    this.ready = el("p", { class: "said", role: "status" });
    this.places = { nodes: card("Nodes"), breakers: card("Circuit breakers"), hooks: card("Hooks"), mcp: card("MCP servers"), backup: card("Backup") };
    this.node = el("section", { class: "view", "aria-label": "Servers" },
      el("div", { class: "view-head" }, el("h1", {}, "Servers"), this.lever({ label: "Drain this server…", title: "Drain this server?", says: `${DRAINS} The process ends.`, action: "Drain", method: "POST", path: "api/drain", isDanger: true })),
      this.ready, this.facts, el("div", { class: "cards" }, Object.values(this.places).map(({ node }) => node)));
    this.places.nodes.node.classList.add("wide");
    this.places.backup.node.append(this.lever({ label: "Back up now…", title: "Back up the database?", says: "A copy of the database is written to BACKUP_DIR while the server runs. It contains all conversations.", action: "Back up", method: "POST", path: "api/backup" }));
  }

  close() {
    this.isClosed = true;
    clearTimeout(this.timer);
  }

  /** @param {import("./levers.js").Lever & { label: string }} lever */
  lever(lever) {
    return leverButtons(this.app, [lever], () => [this.nodes, this.others, this.backup].forEach(({ again }) => again()));
  }

  update() {
    this.showBreakers();
    for (const { run } of [this.nodes, this.others, this.backup]) void run();
  }

  readNodes() {
    return attempt(this.places.nodes.body, async () => this.showNodes((await this.app.api.get("api/nodes")).items));
  }

  readOthers() {
    const { hooks, mcp } = this.places;
    const { api } = this.app;
    return Promise.all([
      attempt(mcp.body, async () => this.showMcp(await api.get("api/mcp"))),
      attempt(hooks.body, async () => this.showMetrics(parseMetrics(await api.get("metrics", {}, "text/plain")))),
      api.get("readyz", {}, "text/plain").then(() => (this.ready.textContent = "This server accepts sessions."), (error) => (this.ready.textContent = `Not ready: ${reasonOf(error).replace(/\.$/, "")}.`)),
    ]);
  }

  /** @param {import("./prometheus.js").Metrics} metrics */
  showMetrics(metrics) {
    const open = Object.fromEntries((metrics.get("reseed_breakers_open") ?? []).map(({ labels, value }) => [labels.reason, value]));
    put(this.facts, tiles([
      ["Version", metrics.get("reseed_build_info")?.[0]?.labels.version ?? "–"], ["Connections", number(sumOf(metrics, "reseed_connections"))], ["Sessions in memory", number(sumOf(metrics, "reseed_sessions_open"))],
      ["Requests waiting", number(sumOf(metrics, "reseed_model_requests_waiting"))], ["Breakers open", number(Object.values(open).reduce((sum, value) => sum + value, 0))],
      ["Failed commits", number(sumOf(metrics, "reseed_store_commits_total", { outcome: "failed" }))],
    ]));
    const hooks = hooksOf(metrics);
    const rows = hooks.map(({ kind, point, calls, meanMs, outcomes }) => {
      const faults = Object.entries(outcomes).filter(([outcome]) => outcome !== "ok").map(([outcome, times]) => `${number(times)} ${OUTCOMES[outcome] ?? outcome}`);
      return el("tr", {}, el("th", { scope: "row" }, `${point} (${kind})`), el("td", {}, number(calls)), el("td", {}, meanMs === null ? "–" : span(meanMs)), el("td", { class: "text", "data-level": faults.length > 0 ? "bad" : null }, faults.join(", ") || "none"));
    });
    put(this.places.hooks.body, hooks.length === 0 ? said("No hook was called since the server started.") : table("Hooks", ["Point", "Calls", "Mean time", "Failures:"], rows));
  }

  /** @param {Node[]} items */
  showNodes(items) {
    if (items.length === 0) return put(this.places.nodes.body, said("This server runs alone: its database is not shared."));
    const why = { living: "", draining: "It stops: no new turns start there.", silent: "It has not renewed its lease: it was killed, is paused, or has lost the database." };
    const rows = items.map((item) => el("tr", {},
      el("th", { scope: "row" }, item.name || `node ${item.node}`, item.self && " (this one)", el("small", {}, item.address ?? "without NODE_ADDRESS")),
      el("td", { class: "text", "data-level": item.state === "living" ? null : "bad" }, item.state, el("small", {}, why[/** @type {keyof typeof why} */ (item.state)] ?? "")),
      el("td", {}, number(item.sessions)), el("td", {}, number(item.connections)), el("td", {}, `${span(item.beatAgeMs)} of ${span(item.leaseMs)}`), el("td", {}, item.version),
      el("td", {}, item.state === "living" && !item.self && this.nodeDrain(item.name))));
    put(this.places.nodes.body, table("Nodes", ["Node", "State:", "Sessions", "Connections", "Lease", "Version", "Lever"], rows));
  }

  /** @param {string} name */
  nodeDrain(name) {
    return this.lever({ label: "Drain…", title: `Drain ${name}?`, says: `${DRAINS} Its clients connect to the other nodes, and its process ends.`, action: "Drain", method: "POST", path: "api/drain", body: { node: name }, isDanger: true });
  }

  showBreakers() {
    const open = [...this.app.store.items.values()].filter(({ compaction }) => compaction?.rests !== undefined);
    const rows = open.slice(0, ROWS_MAX).map((item) => el("tr", {},
      el("th", { scope: "row" }, el("a", { href: `#session=${encodeURIComponent(item.sessionId)}` }, item.name || item.sessionId.slice(0, 12))), el("td", { class: "text" }, item.owner || "(nobody)"),
      el("td", {}, `${Math.round(item.usageRatio * 100)} %`), el("td", { class: "text" }, breakerReason(item.compaction?.rests ?? "")), el("td", {}, item.compaction?.last ? ago(item.compaction.last.at, Date.now()) : "–")));
    const more = open.length > rows.length && said(`${number(open.length - rows.length)} more.`);
    put(this.places.breakers.body, open.length === 0 ? said("None is open: automatic compaction works in every session in memory.") : table("Circuit breakers", ["Session", "User:", "Context", "Because:", "Last one"], rows), more);
  }

  /** @param {{ items: McpServer[] }} servers */
  showMcp({ items }) {
    if (items.length === 0) return put(this.places.mcp.body, said("None is configured (MCP_FILE)."));
    const rows = items.map((item) => el("tr", {},
      el("th", { scope: "row" }, item.name, el("small", {}, [item.software, item.transport].filter(Boolean).join(", "))),
      el("td", { class: "text", "data-level": ["failing", "stopping"].includes(item.state) ? "bad" : null }, item.state, el("small", {}, item.error ? `The server ${item.error}` : item.failure?.replaceAll("_", " ") ?? "")),
      el("td", {}, number(item.restarts)), el("td", {}, number(item.tools.length), item.leftOut && el("small", {}, `${item.leftOut.length} not offered`)), el("td", {}, count(item.tokens))));
    put(this.places.mcp.body, table("MCP servers", ["Server", "State:", "Restarts", "Tools", "Tokens"], rows));
  }

  /** Shows the progress of a backup, and asks again while one runs. */
  async watchBackup() {
    const { body } = this.places.backup;
    await attempt(body, async () => {
      const { state, file, pages = 0, pagesDone = 0, error } = await this.app.api.get("api/backup");
      const percent = pages > 0 ? Math.min(100, (pagesDone / pages) * 100) : 0;
      const running = state === "running" && meter(percent, "Backup", "progressbar");
      /** @type {Record<string, string>} */
      const texts = { none: "None was made since the server started.", running: `${Math.round(percent)} %: ${number(pagesDone)} of ${number(pages)} pages.`, done: `Done: ${file}`, failed: `Failed: ${error ?? "see the log"}` };
      put(body, running, el("p", { class: state === "failed" ? "said wrong" : "said", role: "status" }, texts[state] ?? state));
      clearTimeout(this.timer);
      if (state === "running" && !this.isClosed) this.timer = setTimeout(() => void this.backup.run(), BACKUP_MS);
    });
  }
}
