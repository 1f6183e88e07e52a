/** The operator's page: its pure parts, and the page alone against a mock server with up to 10,000 sessions. */

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { after, before, test } from "node:test";
import { factsOf } from "../../src/server/web/operator/levers.js";
import { hooksOf, parseMetrics, sumOf } from "../../src/server/web/operator/prometheus.js";
import { binsOf, grouped, largest, roundUp, summed } from "../../src/server/web/operator/series.js";
import { arranged, countsOf, rowsInView } from "../../src/server/web/operator/session-list.js";
import { INTERVAL_MS, SessionStore } from "../../src/server/web/operator/session-store.js";
import { branchesOf } from "../../src/server/web/operator/tree-shape.js";
import { launch, newPage } from "./browser.mjs";
import { OperatorMock } from "./operator-mock.mjs";

const AXE = await readFile(new URL(import.meta.resolve("axe-core")), "utf8");

/** Maximum elements of the page, however many sessions there are. */
const ELEMENTS_MAX = 700;
/** Maximum milliseconds of processor time of a task. */
const TASK_MS = 50;

/** A token that is nowhere but in the page's memory. */
const TOKEN = "an-operators-secret-1";

/** Console messages of the browser when a request is refused; tests of that expect them. */
const REFUSED = /status of (401|403|404|503)/;

let browser;
before(async () => (browser = await launch()));
after(() => browser.close());

/** Runs a test on a fresh mock server and page, and then checks for faults that must never occur. */
function onPage(name, { expected, viewport, colorScheme, ...options }, body) {
  test(name, async () => {
    const mock = new OperatorMock(options);
    const url = await mock.listen();
    const { page, faults } = await newPage(browser.context, { expected, viewport });
    try {
      if (colorScheme) await page.emulateMedia({ colorScheme });
      await page.goto(url);
      await body({ page, mock, url, faults });
      assert.deepEqual(faults, []);
    } finally {
      await page.close();
      await mock.close();
    }
  });
}

/** Waits until the whole list was read. */
const loaded = (page, sessions) => page.waitForFunction((count) => document.querySelector(".tiles b")?.textContent === count, sessions.toLocaleString("en"));

/** Shows another view, and waits until it has its numbers. */
async function show(page, hash) {
  await page.evaluate((to) => (location.hash = to), hash);
  const name = hash.split("=")[0];
  await page.waitForSelector(`.view[aria-label=${name[0].toUpperCase()}${name.slice(1)}]`);
  await page.waitForFunction(() => !/Loading/.test(document.querySelector("main").innerText));
}

/** Lets time pass in a page with an installed clock until this is true there. */
async function passes(page, isTrue, of) {
  for (let step = 0; step < 100; step += 1) {
    if (await page.evaluate(isTrue, of)) return;
    await page.clock.runFor(5_000);
  }
  assert.fail(`not in 500 s: ${isTrue}`);
}

const texts = (page, selector) => page.locator(selector).allInnerTexts();

test("the store reads little, and finds what changed, moved and was deleted", async () => {
  const mock = new OperatorMock({ sessions: 1_300 });
  let pages = 0;
  const store = new SessionStore((asked) => {
    pages += 1;
    return Promise.resolve(mock.answer("/api/sessions", new URLSearchParams(Object.entries(asked).filter(([, value]) => value !== undefined))));
  });
  while (!store.isComplete) await store.poll();
  const same = () => assert.deepEqual([...store.items.values()].sort((one, other) => (one.updatedAt < other.updatedAt ? 1 : -1)), mock.sessions);
  same();
  assert.ok(pages <= 4, `${pages} pages`);
  const quiet = store.version;
  pages = 0;
  for (let poll = 0; poll < 3; poll += 1) await store.poll();
  assert.deepEqual([store.version, pages], [quiet, 6]);
  assert.ok(store.intervalMs > INTERVAL_MS.least);
  // A session far down goes to the front, and one of the newest is deleted.
  mock.touch(mock.sessions[1_200].sessionId, { state: "running" });
  mock.sessions.splice(40, 1);
  await store.poll();
  same();
  assert.equal(store.intervalMs, INTERVAL_MS.least);
  // A change far down that moves nothing, and a deletion there: the sweep finds them.
  mock.sessions[1_100] = { ...mock.sessions[1_100], open: true };
  mock.sessions[1_000] = { ...mock.sessions[1_000], costNanoUsd: 1, tokenCount: 2, usageRatio: 0.00001 };
  mock.sessions.splice(900, 1);
  for (let poll = 0; poll < 3; poll += 1) await store.poll();
  same();
  // More changes at once than one page has.
  for (let changes = 0; changes < 250; changes += 1) mock.touch(mock.sessions[600].sessionId, { entries: changes });
  await store.poll();
  same();
});

test("sessions are filtered and sorted by every column", () => {
  const item = (sessionId, more) => ({ sessionId, name: "", owner: "ann", updatedAt: `2026-11-30T0${sessionId.slice(1)}:00:00Z`, usageRatio: 0.5, state: "idle", open: true, ...more });
  const items = [
    item("s1", { owner: "ben", usageRatio: 0.9, model: "big", costNanoUsd: 5, compaction: { count: 1, last: { at: "2026-11-30T01:00:00Z", outcome: "failed" } } }),
    item("s2", { state: "running", model: "Small", strategy: "threshold", costNanoUsd: 7, compaction: { count: 0, rests: "no_gain" } }),
    item("s3", { name: "Zebra", open: false }),
    item("s4", { name: "apple", state: "compacting", usageRatio: 0.1, strategy: "importance", compaction: { count: 2, last: { at: "2026-11-30T02:00:00Z", outcome: "committed" } } }),
  ];
  const none = { text: "", user: "", model: "", state: "" };
  const ids = (filter, by, isDown) => arranged(items, { ...none, ...filter }, { by, isDown }).map(({ sessionId }) => sessionId).join(" ");
  for (const [filter, by, isDown, expected] of [
    [{}, "updated", true, "s4 s3 s2 s1"], [{}, "updated", false, "s1 s2 s3 s4"], [{}, "name", false, "s4 s1 s2 s3"], [{}, "fullness", true, "s1 s3 s2 s4"], [{}, "state", true, "s4 s2 s1 s3"],
    [{}, "user", false, "s4 s3 s2 s1"], [{}, "model", false, "s1 s2 s4 s3"], [{}, "strategy", false, "s4 s2 s3 s1"], [{}, "compaction", true, "s4 s1 s3 s2"], [{}, "cost", true, "s2 s1 s4 s3"],
    [{ text: " SMA" }, "updated", true, "s2"], [{ user: "ben" }, "updated", true, "s1"], [{ model: "big" }, "updated", true, "s1"], [{ state: "rests" }, "updated", true, "s2"],
    [{ state: "failed" }, "updated", true, "s1"], [{ state: "open", user: "ann" }, "updated", true, "s4 s2"], [{ state: "compacting" }, "updated", true, "s4"],
  ]) assert.equal(ids(filter, by, isDown), expected, JSON.stringify([filter, by, isDown]));
  assert.deepEqual(countsOf(items), { sessions: 4, open: 3, running: 1, compacting: 1, rests: 1, failed: 1 });
  for (const [view, expected] of [
    [{ top: 0, height: 400, row: 40, count: 3 }, { from: 0, to: 3 }], [{ top: 4_000, height: 400, row: 40, count: 10_000 }, { from: 92, to: 118 }],
    [{ top: -300, height: 200, row: 40, count: 50 }, { from: 0, to: 6 }], [{ top: 9_000, height: 400, row: 40, count: 20 }, { from: 20, to: 20 }], [{ top: 0, height: 400, row: 40, count: 0 }, { from: 0, to: 0 }],
  ]) assert.deepEqual(rowsInView(view), expected);
});

test("sums become series: by period, by name, the smaller ones together", () => {
  const bins = binsOf({ stepMs: 60_000, count: 3 }, Date.parse("2026-11-30T10:02:30Z"));
  const at = (minute, name, cost) => ({ from: `2026-11-30T10:0${minute}:00Z`, name, cost });
  const items = [at(0, "a", 1), at(2, "a", 2), at(1, "b", 9), at(1, "b", 1), at(3, "b", 50), at(2, "c", 4), at(0, "d", 0)];
  assert.equal(new Date(bins.from).toISOString(), "2026-11-30T10:00:00.000Z");
  assert.deepEqual(summed(bins, items, ({ from }) => from, ({ cost }) => cost), [1, 10, 6]);
  assert.deepEqual(grouped(bins, items, ({ name }) => name, ({ from }) => from, ({ cost }) => cost, 1), [{ name: "b", values: [0, 10, 0] }, { name: "2 more", values: [1, 0, 6] }]);
  assert.deepEqual(largest([{ name: "x", values: [0, 0] }], 3), []);
  for (const [value, edge] of [[0, 1], [1, 1], [1.1, 1.5], [7, 8], [99, 100], [205_000, 250_000], [0.31, 0.4]]) assert.ok(Math.abs(roundUp(value) - edge) < 1e-9, `${value}: ${roundUp(value)}`);
});

test("metrics, trees and answers are read", () => {
  const metrics = parseMetrics("# TYPE a counter\na 3\na_total{x=\"1\",y=\"q\\\"\\n}\"} 2.5\na_total{x=\"2\"} 1e3\nbroken\nreseed_hook_calls_total{kind=\"client\",point=\"message\",outcome=\"ok\"} 3\nreseed_hook_calls_total{kind=\"client\",point=\"message\",outcome=\"hook_timeout\"} 1\nreseed_hook_calls_total{kind=\"rust\",point=\"message\",outcome=\"ok\"} 0\n");
  assert.deepEqual([sumOf(metrics, "a"), sumOf(metrics, "a_total"), sumOf(metrics, "a_total", { x: "2" }), sumOf(metrics, "none"), metrics.get("a_total")[0].labels.y], [3, 1002.5, 1000, 0, "q\"\n}"]);
  assert.deepEqual(hooksOf(metrics), [{ kind: "client", point: "message", outcomes: { ok: 3, hook_timeout: 1 }, calls: 4, meanMs: null }]);
  const node = (entryId, parentId, type = "message:user") => ({ entryId, parentId, type });
  const { branches, depth } = branchesOf([node("a", null), node("b", "a"), node("c", "b"), node("d", "a", "compaction"), node("e", "d"), node("f", "c")], "e");
  assert.deepEqual([branches.map(({ lane, fromLane, from, to, compactions }) => [lane, fromLane, from, to, compactions]), depth], [[[0, 0, 0, 3, [2]], [1, 0, 1, 4, []]], 4]);
  assert.deepEqual(branchesOf([], null), { branches: [], depth: 0, hasOwn: false });
  // The nodes end before the leaf.
  for (const [leaf, hasOwn] of [["b", true], ["z", false]]) assert.equal(branchesOf([node("a", null), node("b", "a")], leaf).hasOwn, hasOwn);
  assert.deepEqual(factsOf({ usageRows: 1812, costNanoUsd: 2e9, search: { found: 0, tables: ["a", "b"] }, steps: [{ rung: "x", reason: "y" }], summary: "" }), [["usage rows", "1,812"], ["cost", "$2.00"], ["search, found", "0"], ["search, tables", "a, b"], ["steps", "x: y"]]);
});

onPage("10,000 sessions: few elements, no long task, sorted, filtered, and read in small parts", { sessions: 10_000 }, async ({ page, mock }) => {
  const cdp = await page.context().newCDPSession(page);
  const events = [];
  cdp.on("Tracing.dataCollected", ({ value }) => events.push(...value));
  await cdp.send("Tracing.start", { transferMode: "ReportEvents", traceConfig: { includedCategories: ["toplevel"] } });
  await page.reload();
  await loaded(page, 10_000);
  assert.ok(mock.requests.filter((asked) => asked.startsWith("GET /api/sessions?")).every((asked) => Number(/limit=(\d+)/.exec(asked)[1]) <= 500));
  const names = new Set();
  const see = async () => {
    assert.ok((await page.evaluate(() => document.querySelectorAll("*").length)) < ELEMENTS_MAX);
    for (const index of await page.locator(".rows .row").evaluateAll((rows) => rows.map((row) => row.getAttribute("aria-rowindex")))) names.add(Number(index));
  };
  for (const column of ["name", "fullness", "state", "user", "model", "strategy", "compaction", "cost", "updated"]) {
    await page.click(`.head .c-${column} button`);
    assert.match(await page.getAttribute(`.head .c-${column}`, "aria-sort"), /ending$/);
    await see();
  }
  await page.click(".head .c-cost button");
  const most = Math.max(...mock.sessions.map(({ costNanoUsd = 0 }) => costNanoUsd));
  assert.equal(await page.locator(".rows [aria-rowindex='2'] .c-cost").innerText(), `$${(most / 1e9).toFixed(2)}`);
  await page.fill("[type=search]", mock.sessions[9_876].sessionId.toUpperCase());
  await page.waitForFunction(() => document.querySelectorAll(".rows .row").length === 1);
  assert.equal(await page.locator(".rows a").getAttribute("data-session"), mock.sessions[9_876].sessionId);
  assert.match(await page.innerText(".view > .said"), /^1 of 10,000 sessions$/);
  await page.fill("[type=search]", "");
  await page.selectOption("[name=user]", "carla");
  await page.click(".tile.rests");
  assert.match(await page.innerText(".view > .said"), new RegExp(`^${mock.sessions.filter(({ owner, compaction }) => owner === "carla" && compaction?.rests).length} of`));
  await page.selectOption("[name=user]", "");
  await page.click(".tile.rests");
  assert.equal(await page.getAttribute(".tile.rests", "aria-pressed"), "false");
  await page.evaluate(() => (document.querySelector("main").scrollTop = 1e9));
  await page.waitForSelector("[aria-rowindex='10001']");
  await see();
  // By keyboard, from the end to the beginning.
  await page.focus("[aria-rowindex='10001'] a");
  await page.keyboard.press("ArrowUp");
  assert.equal(await page.evaluate(() => document.activeElement.closest(".row").getAttribute("aria-rowindex")), "10000");
  await page.keyboard.press("Home");
  assert.equal(await page.evaluate(() => document.activeElement.closest(".row").getAttribute("aria-rowindex")), "2");
  await see();
  assert.ok(names.has(2) && names.has(10_001));
  // Rows follow one another in the page as they do on the screen.
  for (const top of [20_000, 19_400, 0]) {
    await page.evaluate((to) => (document.querySelector("main").scrollTop = to), top);
    await page.evaluate(() => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve))));
    const places = await page.locator(".rows .row").evaluateAll((rows) => rows.map((row) => Number(row.getAttribute("aria-rowindex"))));
    assert.deepEqual(places, [...places].sort((one, other) => one - other));
  }
  assert.equal(await page.evaluate(() => document.activeElement.closest(".row").getAttribute("aria-rowindex")), "2");
  const ended = new Promise((resolve) => cdp.once("Tracing.tracingComplete", resolve));
  await cdp.send("Tracing.end");
  await ended;
  // Processor time, because other programs may interrupt a task at any time.
  const tasks = events.filter(({ name, tdur }) => name.endsWith("RunTask") && tdur !== undefined).map(({ tdur }) => tdur / 1000);
  assert.ok(tasks.length > 100 && Math.max(...tasks) < TASK_MS, `${tasks.length} tasks, up to ${Math.max(...tasks)} ms`);
});

onPage("the list is live: what changes moves, what is deleted goes, the focus stays, and a hidden tab asks nothing", {}, async ({ page, mock }) => {
  await page.clock.install();
  await page.reload();
  await loaded(page, 240);
  const third = mock.sessions[2].sessionId;
  await page.focus(`[data-session="${third}"]`);
  const { sessionId } = mock.sessions[200];
  mock.touch(sessionId, { state: "running", open: true, model: "gpt-5.2", compaction: { count: 1, last: { at: new Date().toISOString(), outcome: "failed", code: "upstream_auth" } } });
  mock.sessions.splice(10, 1);
  await page.waitForSelector(`[aria-rowindex='2'] [data-session="${sessionId}"]`);
  await loaded(page, 239);
  assert.match(await page.innerText("[aria-rowindex='2']"), /answering[\s\S]*failed \(upstream_auth\)/);
  assert.equal(await page.evaluate(() => document.activeElement.dataset.session), third);
  await page.evaluate(() => {
    Object.defineProperty(document, "hidden", { value: true, configurable: true });
    document.dispatchEvent(new Event("visibilitychange"));
  });
  assert.equal(await page.innerText("#live"), "Paused");
  const asked = mock.requests.length;
  await page.clock.runFor(10 * INTERVAL_MS.most);
  // What the page had sent before this would have arrived.
  await page.evaluate(() => fetch("/readyz"));
  assert.deepEqual(mock.requests.slice(asked), ["GET /readyz"]);
  await page.evaluate(() => {
    Object.defineProperty(document, "hidden", { value: false, configurable: true });
    document.dispatchEvent(new Event("visibilitychange"));
  });
  await page.waitForFunction(() => /^Live/.test(document.querySelector("#live").textContent));
  assert.ok(mock.requests.length > asked);
});

onPage("a token is asked for, kept in memory only, and asked for again", { token: TOKEN, expected: REFUSED }, async ({ page, mock, url }) => {
  await page.waitForSelector("#token:focus");
  await page.fill("#token", "wrong");
  await page.keyboard.press("Enter");
  await page.waitForSelector("#refused:has-text('not an operator’s token')");
  await page.fill("#token", TOKEN);
  await page.keyboard.press("Enter");
  await loaded(page, 240);
  for (const hash of ["usage", "users", "servers", `session=${mock.sessions[0].sessionId}`, "sessions"]) await show(page, hash);
  const kept = await page.evaluate(() => JSON.stringify([{ ...localStorage }, { ...sessionStorage }, document.cookie, location.href, history.state, document.documentElement.outerHTML]));
  assert.ok(!kept.includes(TOKEN));
  assert.ok(!mock.requests.join(" ").includes(TOKEN));
  // The server takes it back.
  mock.token = "another-one";
  await page.waitForSelector("#token");
  assert.equal(await page.locator(".rows, nav:visible").count(), 0);
  mock.token = TOKEN;
  await page.fill("#token", TOKEN);
  await page.keyboard.press("Enter");
  await loaded(page, 240);
  await page.goto(url);
  await page.waitForSelector("#token");
});

onPage("an answer that is not the server's is said, and the page goes on", {}, async ({ page, mock, faults }) => {
  await page.clock.install();
  await page.reload();
  await loaded(page, 240);
  const isLive = (state) => document.querySelector("#live").dataset.state === state;
  mock.proxy = { type: "text/html", body: "<!doctype html><p>Sign in</p>" };
  await passes(page, isLive, "off");
  assert.match(await page.innerText("#live"), /not this server’s/);
  mock.proxy = null;
  await passes(page, isLive, "on");
  // Even what the page cannot read does not stop it.
  mock.proxy = { type: "application/json", body: "{}" };
  const thrown = page.waitForEvent("pageerror");
  await passes(page, isLive, "off");
  await thrown;
  assert.match(faults.splice(0).join(), /^exception: /);
  mock.proxy = null;
  mock.sessions.splice(10, 1);
  await passes(page, () => document.querySelector(".tiles b").textContent === "239");
  assert.ok(await page.evaluate(isLive, "on"));
});

onPage("a new reading keeps the chosen request, the older ones, and how far a table is scrolled", { viewport: { width: 700, height: 500 } }, async ({ page, mock }) => {
  mock.requestsMax = 20;
  const { sessionId } = mock.sessions[0];
  await page.clock.install();
  await page.reload();
  await loaded(page, 240);
  await show(page, `session=${sessionId}`);
  const slider = page.locator("[aria-label=Requests] [type=range]");
  const requests = (count) => document.querySelector("[aria-label=Requests] [type=range]").max === String(count - 1);
  await page.waitForFunction(requests, 19);
  // A double click loads one page.
  await page.locator("text=Load older ones").evaluate((button) => (button.click(), button.click()));
  await page.waitForFunction(requests, 38);
  assert.equal(mock.requests.filter((asked) => asked.includes("before=")).length, 1);
  await slider.fill("10");
  const chosen = async () => (await page.locator("[aria-label=Requests] dd").allInnerTexts())[0].replace(/ of \d+/, "");
  const before = await chosen();
  assert.match(before, /^11, /);
  const scroll = page.locator("[aria-label='Context window'] .scroll");
  await scroll.evaluate((node) => {
    node.style.maxHeight = "60px";
    node.scrollTop = 30;
  });
  await page.evaluate(() => {
    const sheet = new CSSStyleSheet();
    sheet.replaceSync(".scroll { max-height: 60px; }");
    document.adoptedStyleSheets = [sheet];
  });
  mock.requestsCount = 63;
  mock.touch(sessionId, { tokenCount: 1_234 });
  await passes(page, requests, 41);
  assert.equal(await chosen(), before);
  await page.waitForFunction(() => /1,2\d\d of/.test(document.querySelector("[aria-label='Context window'] .sum").textContent));
  assert.equal(await scroll.evaluate((node) => node.scrollTop), 30);
  // At the right end, the newest one is followed.
  await slider.fill("40");
  mock.requestsCount = 64;
  mock.touch(sessionId, {});
  await passes(page, requests, 42);
  assert.match(await chosen(), /^42, /);
  await page.click("text=Show the next request");
  await page.waitForSelector("[aria-label='Context window'] h3:has-text(', as of ')");
});

onPage("a lever stays open while it acts, and its next attempt sends the same", { expected: REFUSED }, async ({ page, mock }) => {
  await loaded(page, 240);
  await show(page, `session=${mock.sessions[3].sessionId}`);
  await page.click("text=Compact…");
  await page.fill("dialog input", "the names");
  let answer;
  mock.held = new Promise((resolve) => (answer = resolve));
  mock.fails = 503;
  await page.click("dialog [type=submit]");
  await page.waitForSelector("dialog :text('Working…')");
  for (let press = 0; press < 3; press += 1) await page.keyboard.press("Escape");
  assert.equal(await page.locator("dialog[open] button:enabled").count(), 0);
  answer();
  await page.waitForSelector("dialog .wrong:has-text('it acts once')");
  assert.equal(await page.locator("dialog input").evaluate((input) => input.readOnly), true);
  mock.fails = null;
  await page.click("dialog [type=submit]");
  await page.waitForSelector("dialog .done");
  await page.keyboard.press("Escape");
  await page.waitForSelector("dialog", { state: "detached" });
  assert.deepEqual(mock.acts.map(({ body }) => body), [{ instructions: "the names" }]);
});

onPage("what a token may not do is disabled, with the reason", { writes: false, readsContent: false }, async ({ page, mock }) => {
  await loaded(page, 240);
  await show(page, `session=${mock.sessions[0].sessionId}`);
  assert.deepEqual(await page.locator(".levers button:not([hidden])").evaluateAll((all) => all.map(({ disabled }) => disabled)), Array(7).fill(true));
  assert.match(await page.innerText(".view-head"), /operator\.write/);
  assert.match(await page.innerText("[aria-label='Context window']"), /operator\.content/);
  for (const hash of ["user=ann", "servers"]) {
    await show(page, hash);
    assert.equal(await page.locator(".levers button:enabled").count(), 0);
    assert.match(await page.innerText(".view-head"), /operator\.write/);
  }
});

onPage("a lever says what it does, acts once however often it is tried, and shows the result", { expected: REFUSED }, async ({ page, mock }) => {
  await loaded(page, 240);
  const { sessionId } = mock.sessions[3];
  await show(page, `session=${sessionId}`);
  await page.click("text=Compact…");
  assert.match(await page.innerText("dialog"), /costs money/);
  await page.fill("dialog input", "the names");
  mock.fails = 503;
  await page.click("dialog [type=submit]");
  await page.waitForSelector("dialog .wrong:has-text('the store cannot write')");
  mock.fails = null;
  await page.click("dialog [type=submit]");
  await page.waitForSelector("dialog .done");
  assert.match(await page.innerText("dialog .facts"), /job id\s*job-1/);
  await page.click("dialog button:has-text('Close')");
  assert.deepEqual(mock.acts.map(({ method, path, body }) => [method, path, body]), [["POST", `/api/sessions/${sessionId}/compact`, { instructions: "the names" }]]);
  await page.click("text=Preview…");
  await page.click("dialog [type=submit]");
  await page.waitForSelector("dialog .done");
  assert.match(await page.innerText("dialog .facts"), /tokens after\s*60,000[\s\S]*provider_native: timeout[\s\S]*asked for a ferry/);
  await page.keyboard.press("Escape");
  // Nothing is deleted before the beginning of the id is typed.
  await page.click("text=Delete…");
  await page.click("dialog [type=submit]");
  assert.equal(mock.acts.length, 2);
  await page.fill("dialog input", sessionId.slice(0, 4));
  await page.click("dialog [type=submit]");
  await page.waitForSelector("dialog .done");
  await page.click("dialog button:has-text('Close')");
  await loaded(page, 239);
  await show(page, "user=service%3Ashop%7C4711");
  await page.click("text=Delete all…");
  await page.fill("dialog input", "service:shop|4711");
  await page.click("dialog [type=submit]");
  await page.waitForSelector("dialog .done");
  assert.match(await page.innerText("dialog .facts"), /usage rows\s*812[\s\S]*search, found\s*0/);
  await page.keyboard.press("Escape");
  await show(page, "servers");
  await page.click("text=Back up now…");
  await page.click("dialog [type=submit]");
  await page.waitForSelector("dialog .done");
  await page.keyboard.press("Escape");
  await page.waitForSelector("[aria-label=Backup] :text('Done: reseed-2026-11-30.db')");
  await page.click("[aria-label='Nodes'] button:has-text('Drain…')");
  await page.click("dialog [type=submit]");
  await page.waitForSelector("dialog .done");
  assert.deepEqual(mock.acts.slice(2).map(({ method, path, body }) => [method, path, body]), [
    ["DELETE", `/api/sessions/${sessionId}`, undefined], ["DELETE", "/api/users/service%3Ashop%7C4711", undefined], ["POST", "/api/backup", undefined], ["POST", "/api/drain", { node: "chat-4" }],
  ]);
  assert.equal(new Set(mock.acts.map(({ key }) => key)).size, mock.acts.length);
});

onPage("plots add up to the sums, in every range, also as tables", {}, async ({ page, mock }) => {
  await loaded(page, 240);
  await show(page, "usage");
  for (const range of ["hour", "day", "week"]) {
    await page.click(`[data-range=${range}]`);
    await page.waitForSelector(`[data-range=${range}][aria-pressed=true]`);
    // The sums of the newest reading; the one before may still be under way.
    const agrees = async () => {
      const asked = mock.requests.findLast((asked) => /by=total&step/.test(asked));
      const from = decodeURIComponent(asked.split("from=")[1].split("&")[0]);
      const step = range === "hour" ? "minute" : "hour";
      const sums = mock.answer("/api/usage", new URLSearchParams({ by: "total", step, from })).items;
      const requests = sums.reduce((sum, item) => sum + item.requests, 0).toLocaleString("en");
      const cost = sums.reduce((sum, item) => sum + item.costNanoUsd, 0) / 1e9;
      if (!(await texts(page, ".tiles dd"))[1]?.includes(requests)) return false;
      for (const plot of ["Cost by model", "Cost by user"]) {
        const legend = await texts(page, `.plot:has(h2:text-is("${plot}")) .legend b`);
        const shown = legend.reduce((sum, text) => sum + Number(text.replace(/[$,]/g, "")), 0);
        if (Math.abs(shown - cost) >= 0.05) return false;
      }
      return true;
    };
    for (let tries = 0; !(await agrees()); tries += 1) {
      assert.ok(tries < 500, `${range}: the plots do not add up to the sums`);
      await page.evaluate(() => new Promise(requestAnimationFrame));
    }
  }
  const tokens = page.locator(".plot").first();
  await tokens.locator("summary").click();
  await tokens.locator("thead").waitFor();
  assert.deepEqual(await tokens.locator("thead th").allInnerTexts(), ["From", "from a cache", "written to a cache", "other input", "reasoning", "other output"]);
  assert.equal(await tokens.locator("tbody tr").count(), 168);
  await tokens.locator("svg").hover();
  assert.doesNotMatch(await tokens.locator(".when").innerText(), /^Since/);
  const titles = await texts(page, ".plot h2");
  assert.deepEqual(titles, ["Tokens", "Cost by model", "Cost by user", "Cache share", "Compactions", "Waiting for permits", "Waiting for compactions", "Failures"]);
});

for (const [screen, options] of Object.entries({ desktop: {}, dark: { colorScheme: "dark" }, phone: { viewport: { width: 360, height: 740 } }, zoom: { viewport: { width: 640, height: 400 }, colorScheme: "dark" } })) {
  onPage(`axe finds no violations in any view, and nothing is wider than the screen: ${screen}`, options, async ({ page, mock }) => {
    await loaded(page, 240);
    await page.evaluate(AXE);
    for (const hash of ["sessions", "usage", "users", "user=ann", "servers", `session=${mock.sessions[7].sessionId}`]) {
      await show(page, hash);
      if (hash === "usage") for (const summary of await page.locator("summary").all()) await summary.click();
      const violations = await page.evaluate(async () => (await globalThis.axe.run()).violations);
      assert.deepEqual(violations.map(({ id, nodes }) => [hash, id, ...nodes.map(({ target }) => target.join(" "))]), []);
      assert.equal(await page.evaluate(() => document.documentElement.scrollWidth > innerWidth || document.querySelector("main").scrollWidth > document.querySelector("main").clientWidth), false, hash);
    }
    await page.click("text=Delete…");
    const violations = await page.evaluate(async () => (await globalThis.axe.run()).violations);
    assert.deepEqual(violations.map(({ id, nodes }) => [id, ...nodes.map(({ target }) => target.join(" "))]), []);
  });
}
