/**
 * The next request, split into parts and in its panel on the page alone against the mock server; the traces of hooks in
 * the chat.
 */

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { aboutText, optionsText, sectionsOf, stackOf } from "../../src/server/web/request.js";
import { transformLine } from "../../src/server/web/transform.js";
import { conversation, launch, newPage, say, settled } from "./browser.mjs";
import { MockServer } from "./mock.mjs";
import { talk } from "./steps.mjs";
import { World } from "./world.mjs";

/** Console messages of the browser while a server is down; tests of that expect them. */
const AWAY = /WebSocket connection to|net::ERR_CONNECTION_REFUSED/;

let browser;
before(async () => (browser = await launch()));
after(() => browser.close());

/** Runs a test on a fresh server and page, and then checks for faults that must never occur. */
function onPage(name, options, body) {
  test(name, async () => {
    const server = new MockServer(options);
    const url = await server.listen();
    const { page, faults } = await newPage(browser.context, options);
    try {
      await page.goto(url);
      await body({ page, server, url, world: () => [...server.worlds.values()][0] });
      assert.deepEqual([faults, server.faults], [[], []]);
    } finally {
      await page.close();
      await server.close();
    }
  });
}

const number = (text) => Number(text.replace(/\D/g, ""));

/** Returns the rows of the panel: name, kind and count. */
const rows = (page) => page.locator("#request details").evaluateAll((all) =>
  all.map((one) => `${one.querySelector(".name").textContent} ${one.dataset.kind} ${one.querySelector(".count")?.firstChild.textContent ?? "?"}`));

/** Opens the panel and waits for its content. */
async function open(page) {
  await say(page, "/request");
  await page.waitForSelector("#request:not([hidden]) details");
}

// Parts

const TOOL = { name: "look_up", description: "Looks something up.", parameters: { type: "object" } };

test("parts are in their order, and their tokens add up", () => {
  const world = new World();
  world.tools = [TOOL];
  world.say("hello");
  world.append({ type: "message", role: "assistant", content: [
    { type: "reasoning", text: "Let me\n\nsee." }, { type: "tool_call", toolCallId: "c", name: "look_up", arguments: "{\"q\":1}" }] });
  world.append({ type: "message", role: "tool", content: [{ type: "tool_result", toolCallId: "c", output: "nothing", isError: true }] });
  world.append({ type: "ephemeral", transformerName: "clock", patch: [{ op: "messages_uncached_append", messages: [{ role: "user", content: [{ type: "text", text: "It is noon." }] }] }] });
  const envelope = world.envelope({ ephemeral: true });
  const sections = sectionsOf(envelope, () => false);
  assert.deepEqual(sections.map(({ title, rows }) => [title, ...rows.map(({ kind, name, preview }) => `${kind} ${name}: ${preview}`)]), [
    ["System prompt", "system base: You are a mock."],
    ["Tools", "tools look_up: Looks something up. Arguments { \"type\": \"object\" }"],
    ["Messages", "user User: hello", "assistant Assistant: Reasoning Let me see. Calls look_up {\"q\":1}", "toolResults Tool result: Failed nothing"],
    ["For this request only", "uncached User: It is noon."],
  ]);
  const keys = sections.flatMap((section) => section.rows.map((row) => row.key));
  assert.deepEqual(keys, ["system:base", "tool:look_up", ...world.path().slice(0, 3).map((entry) => entry.entryId), "uncached:0"]);
  const stack = stackOf(sections, envelope.meta);
  assert.deepEqual(stack.map(({ kind }) => kind), ["system", "tools", "user", "assistant", "toolResults", "uncached", "frame"]);
  assert.equal(stack.reduce((sum, { tokens }) => sum + tokens, 0), envelope.meta.tokens);
});

test("summaries and pictures are shown as such, and uncounted or unknown parts are shown all the same", () => {
  const message = (entryId, role, ...content) => ({ entryId, message: { role, content } });
  const picture = { type: "image", url: "data:image/png;base64,AAAA" };
  const cached = [message("s", "user", { type: "text", text: "Goal" }), message("p", "user", picture, { type: "image", url: "https://example.com/a.png" }), message("x", "robot", { type: "dance" })];
  const envelope = { system: { parts: [], compiled: "" }, tools: [], messages: { cached, uncached: [] }, options: {} };
  const [{ rows }] = sectionsOf(envelope, (entryId) => entryId === "s");
  assert.deepEqual(rows.map(({ kind, name, tokens }) => [kind, name, tokens]), [["summary", "Summary", null], ["user", "User", null], ["user", "robot", null]]);
  assert.deepEqual(rows[1].said(), [{ label: "Picture", text: "", picture: picture.url }, { label: "Picture", text: "https://example.com/a.png" }]);
  assert.deepEqual(rows[2].said(), [{ text: "{\"type\":\"dance\"}" }]);
  assert.deepEqual(stackOf(sectionsOf(envelope, () => false), undefined), []);
});

test("the texts around it", () => {
  const meta = { model: "m", windowTokens: 8000, request: 1, tokens: 1200 };
  assert.equal(aboutText(meta, 1200), "m · 1,200 of 8,000 tokens");
  assert.equal(aboutText({ ...meta, turnId: "t", request: 2 }, 1200), "m · 1,200 of 8,000 tokens · request 2 for the answer that is being written");
  assert.equal(aboutText(undefined, 7), "7 tokens");
  assert.equal(optionsText({}), "");
  assert.equal(optionsText({ temperature: 0, maxOutputTokens: 1000, reasoningEffort: "low" }), "temperature 0 · at most 1,000 tokens of answer · reasoning effort low");
});

test("a hook's change is described in a line", () => {
  const op = (reason) => ({ op: "tools_remove", toolNames: [], invalidateCacheReason: reason });
  const uncached = { op: "messages_uncached_append", messages: [] };
  const entry = (more) => ({ type: "context_transform", entryId: "e", parentId: null, timestamp: "", schemaVersion: 1, transformerName: "policy", patch: [], ...more });
  const table = [
    [entry({ patch: [op("new rules "), op("new rules"), uncached, op("fewer tools")] }), "The hook “policy” changed what the model sees: new rules; fewer tools", null],
    [entry({}), "The hook “policy” changed what the model sees.", null],
    [entry({ patch: [op("why")], display: { title: "Rules", summary: "Two" } }), "The hook “policy” changed what the model sees: why", null],
    [entry({ display: { title: "Rules", summary: "Two", showInChat: true } }), "Rules: Two", null],
    [entry({ display: { title: "Rules", markdown: "**b**", showInChat: true } }), "Rules", "**b**"],
  ];
  for (const [given, text, markdown] of table) assert.deepEqual(transformLine(given), { text, markdown });
  assert.equal(transformLine({ type: "context_transform", ops: [] }), null);
});

// Panel

onPage("parts with their tokens, unfolded by key and click; Markdown and JSON; refreshed after a turn", {}, async ({ page, world }) => {
  await say(page, "use a tool");
  await settled(page, 2);
  Object.assign(world(), { tools: [TOOL], options: { temperature: 0.5 } });
  await page.click("#gauge-button");
  await page.click("#breakdown button:has-text('next request')");
  await page.waitForSelector("#request details");
  assert.equal(await page.locator("#breakdown:popover-open").count(), 0);
  assert.equal(await page.evaluate(() => document.activeElement.id), "request-title");
  const { meta } = world().envelope();
  const { parts } = meta;
  assert.deepEqual(await rows(page), [
    `base system ${parts.system[0]}`, `look_up tools ${parts.tools[0]}`,
    ...["User user", "Assistant assistant", "Tool result toolResults", "Assistant assistant"].map((name, index) => `${name} ${parts.cached[index]}`),
  ]);
  const counts = (await page.locator("#request details .count, #request .frame .count").allInnerTexts()).map(number);
  assert.equal(counts.reduce((sum, count) => sum + count, 0), meta.tokens);
  assert.equal(await page.innerText("#request .about"), `mock-1 · ${meta.tokens} of 8,000 tokens · temperature 0.5`);
  // From the title, Tab reaches everything: close, the three views, copy, the parts.
  for (const label of ["Close the request", "Parts", "Markdown", "JSON", "Copy"]) {
    await page.keyboard.press("Tab");
    assert.equal(await page.evaluate(() => document.activeElement.getAttribute("aria-label") ?? document.activeElement.textContent), label);
  }
  await page.keyboard.press("Tab");
  await page.keyboard.press("Enter");
  await page.waitForSelector("#request details[open] .inside:has-text('You are a mock.')");
  await page.click("#request summary:has-text('look_up')");
  await page.waitForFunction(() => document.querySelectorAll("#request details[open] pre").length === 3);
  assert.match(await page.locator("#request details[open] .inside").nth(1).innerText(), /Looks something up\.\s+Arguments\s+\{\s+"type": "object"\s+\}/);
  await say(page, "and now?");
  await page.waitForFunction(() => document.querySelectorAll("#request details").length === 8);
  assert.equal(await page.locator("#request details[open]").count(), 2, "anything unfolded stays so");
  assert.equal(number((await page.innerText("#request .about")).split(" of ")[0].split("·")[1]), world().envelope().meta.tokens);

  await page.click("#request button:has-text('Markdown')");
  await page.waitForSelector("#request pre:has-text('# system: base')");
  assert.match(await page.innerText("#request pre"), /# user\s+and now\?/);
  await page.click("#request button:has-text('JSON')");
  await page.waitForSelector("#request pre:has-text('\"compiled\"')");
  assert.deepEqual(JSON.parse(await page.innerText("#request pre")), world().envelope());
  assert.deepEqual(await page.locator("#request [aria-pressed=true]").allInnerTexts(), ["JSON"]);
  await page.keyboard.press("Escape");
  assert.equal(await page.locator("#request").isHidden(), true);
  assert.equal(await page.evaluate(() => document.activeElement.id), "gauge-button");
});

onPage("copying copies what is shown", {}, async ({ page, world, url }) => {
  await browser.context.grantPermissions(["clipboard-read", "clipboard-write"], { origin: url });
  await talk(page, ["hello"]);
  await open(page);
  const copied = async () => {
    await page.click("#request button:has-text('Copy')");
    await page.waitForSelector("#request button:has-text('Copied')");
    return page.evaluate(() => navigator.clipboard.readText());
  };
  assert.deepEqual(JSON.parse(await copied()), world().envelope());
  await page.click("#request button:has-text('Markdown')");
  await page.waitForSelector("#request pre:has-text('# system: base')");
  assert.match(await copied(), /^# system: base .*# user\s+hello/s);
});

onPage("hooks: their lines in the chat, a notice where one failed, and what they added for one request", {}, async ({ page, world }) => {
  await say(page, "ask the hooks, and use a tool");
  await settled(page, 2);
  await page.waitForSelector(".toast:has-text('The extension “redact” failed.'):has-text('hook_timeout: it took longer than 5 s')");
  const lines = (await conversation(page)).filter((row) => /hook|Masked/.test(row)).slice(1, 3);
  assert.deepEqual(lines, ["The hook “policy” changed what the model sees: the policy has changed", "Masked: 2 names"]);
  assert.equal(await page.locator("#log .note").count(), 2, "an unknown form is not shown");
  await page.click("#log .transform summary");
  assert.equal(await page.innerText("#log .transform strong"), "Ann");
  await open(page);
  const plain = await rows(page);
  assert.match(plain.join("\n"), /^base system \d+\npolicy system 2\n/);
  assert.ok(!plain.join().includes("uncached"));
  await page.check("#request input[type=checkbox]");
  await page.waitForSelector("#request section[aria-label='For this request only'] details");
  assert.match((await rows(page)).at(-1), /^User uncached \d+$/);
  assert.equal(number((await page.innerText("#request .about")).split(" of ")[0].split("·")[1]), world().envelope({ ephemeral: true }).meta.tokens);
  await page.uncheck("#request input[type=checkbox]");
  await page.waitForSelector("#request section[aria-label='For this request only']", { state: "detached" });
});

onPage("while an answer is written, the panel shows the request after it; a compaction's summary is named, with its hook", { wordMillis: 20 }, async ({ page, world }) => {
  await talk(page, ["one", "two"]);
  await open(page);
  await say(page, "a long one, slowly");
  await page.waitForSelector("#request .about:has-text('request 1 for the answer that is being written')");
  await page.click("#stop");
  await page.waitForSelector("[data-ended=cancelled]");
  await page.waitForFunction(() => !document.querySelector("#request .about").textContent.includes("being written"));
  await say(page, "/compact");
  await page.waitForSelector("#log .compaction");
  await page.waitForSelector("#request details[data-kind=summary]");
  assert.match((await rows(page)).join("\n"), /^base system \d+\nSummary summary \d+\n/);
  world().append({ type: "compaction", summary: "Short.", tokensBefore: 900, tokensAfter: 90, hook: "cheaper" });
  await page.waitForSelector("#log .compaction:has-text('Older messages summarised with the hook “cheaper”')");
});

onPage("an envelope too large to show is reported, and the rest stays available; the tree replaces the panel", { expected: AWAY }, async ({ page, server }) => {
  await talk(page, ["hello"]);
  await open(page);
  server.hidesContext = true;
  await talk(page, ["more"], 1);
  await page.waitForSelector("#request .wrong:has-text('too large')");
  await page.click("#request button:has-text('Markdown')");
  await page.waitForSelector("#request pre:has-text('more')");
  assert.equal(await page.locator(".toast").count(), 0);
  await page.click("#tree-open");
  assert.equal(await page.locator("#request").isHidden(), true);
  await open2(page);
  assert.equal(await page.locator("#tree").isHidden(), true);
  // A lost connection meanwhile is no reason to give up.
  server.hidesContext = false;
  server.dropAll();
  await page.waitForFunction(() => document.querySelector("#connection-line").hidden);
  await page.click("#request button:has-text('Parts')");
  await page.waitForSelector("#request details");
  await page.click("#new-session");
  // A session's state is drawn in the next frame.
  await page.waitForSelector("#request", { state: "hidden" });
});

/** Opens the panel where it shows text. */
async function open2(page) {
  await say(page, "/request");
  await page.waitForSelector("#request:not([hidden])");
}

onPage("text by others stays text, and many messages are drawn in parts", { wordMillis: 0 }, async ({ page, world, server }) => {
  await talk(page, ["show me html"]);
  for (let index = 0; index < 400; index += 1) world().say(`note ${index}`);
  await open(page);
  await page.waitForFunction(() => document.querySelectorAll("#request details").length === 301);
  await page.click("#request button:has-text('Show 102 older')");
  await page.waitForFunction(() => document.querySelectorAll("#request details").length === 403);
  await page.locator("#request summary:has-text('onerror')").first().click();
  await page.waitForSelector("#request details[open] pre:has-text('window.hacked = 1')");
  assert.deepEqual(await page.evaluate(() => [window.hacked ?? null, document.querySelectorAll("#request :is(a, img, script)").length]), [null, 0]);
  const before = server.looks;
  await say(page, "x");
  await page.waitForSelector("#log > li:last-child.assistant:has-text('“x”')");
  await page.waitForFunction(() => document.querySelectorAll("#request details").length === 301);
  assert.ok(server.looks - before <= 6, `${server.looks - before} questions for one turn`);
});

onPage("on a phone it fills the screen", { viewport: { width: 360, height: 640 } }, async ({ page }) => {
  await talk(page, ["hello"]);
  await open(page);
  const box = await page.locator("#request").boundingBox();
  assert.deepEqual([box.x, box.width], [0, 360]);
  assert.equal(await page.evaluate(() => document.documentElement.scrollWidth > innerWidth || document.querySelector("#request-title").scrollWidth > innerWidth), false);
  assert.equal(await page.evaluate(() => document.querySelector("#page").inert), true);
  await page.click("#request [aria-label='Close the request']");
  assert.equal(await page.evaluate(() => document.querySelector("#page").inert), false);
});
