/** Tools in the page: calls as single lines, approval cards and the tool list, on the mock server. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { aboutCall } from "../../src/server/web/tool-calls.js";
import { commandLine, indented, visible } from "../../src/server/web/visible.js";
import { newPage, say, settled } from "./browser.mjs";
import { SCREENS, mockPages } from "./mock-page.mjs";

const onPage = mockPages();

const TOOLS = [
  { name: "shell", description: "Runs a command.", place: "server", tokens: 182, annotations: { destructive: true } },
  { name: "files__read", description: "Reads a file.", place: "server", tokens: 74, annotations: { readOnly: true } },
  { name: "files__delete", description: "Deletes a file.", place: "server", tokens: 71 },
  { name: "weather", description: "The weather.", tokens: 58 },
];

/** Records the commands of one kind that the server receives. */
function spied(server, type) {
  const got = [];
  const handler = server[`on_${type}`];
  server[`on_${type}`] = function take(about) {
    got.push(about.payload);
    return handler.call(this, about);
  };
  return got;
}

/** Returns the visible tool call lines: the tool, what it is about, and how it went, without the time. */
function lines(page) {
  return page.locator("#log details.call:visible > summary").evaluateAll((all) => all.map((summary) =>
    ["code", ".about", ".state"].map((part) => summary.querySelector(part).textContent).join(" | ").replace(/ · [\d.]+ m?s$/, " · time")));
}

async function asks(page) {
  await page.waitForSelector(".approval");
  return page.locator(".approval");
}

test("invisible characters are written out, and indented JSON says exactly the same", () => {
  const shown = [
    ["plain\n\ttext é 🙂", "plain\n\ttext é 🙂"], ["a\u202egpj.exe", "a⟨U+202E⟩gpj.exe"], ["rm\u00a0-rf", "rm⟨U+00A0⟩-rf"],
    ["bell\u0007\r", "bell⟨U+0007⟩⟨U+000D⟩"], ["tag\u{e0041}", "tag⟨U+E0041⟩"],
  ];
  for (const [text, expected] of shown) assert.equal(visible(text), expected);
  const json = [
    ["{\"a\":1,\"b\":[\"x\"]}", "{\n  \"a\": 1,\n  \"b\": [\n    \"x\"\n  ]\n}"],
    ["{\"a\":\"\\u202e\"}", "{\n  \"a\": \"⟨U+202E⟩\"\n}"],
    ["{\"a\":1,\"a\":2}", "{\"a\":1,\"a\":2}"], ["{\"n\":12345678901234567890}", "{\"n\":12345678901234567890}"], ["no JSON", "no JSON"],
  ];
  for (const [text, expected] of json) assert.equal(indented(text), expected);
  assert.equal(commandLine(["cargo", "test", "two words", "\u202e"]), "cargo test \"two words\" \"⟨U+202E⟩\"");
});

test("what a call is about", () => {
  const table = [
    ["{\"path\":\"a.txt\"}", "a.txt"], ["{\"limit\":3,\"query\":\"reseed\"}", "reseed, limit: 3"], ["{\"command\":[\"ls\",\"-l\"]}", "ls -l"],
    ["{}", ""], ["[1]", "[1]"], ["broken", "broken"], [JSON.stringify({ text: "x".repeat(100) }), `${"x".repeat(80)}…`],
  ];
  for (const [text, expected] of table) assert.equal(aboutCall(text), expected);
});

onPage("a call is one line: while it runs, and with its result", { wordMillis: 1 }, async ({ page, server }) => {
  await say(page, "a tool, held");
  await page.waitForSelector("details.call.running");
  assert.deepEqual(await lines(page), ["look_up | reseed, limit: 3 | running…"]);
  await page.click("details.call summary");
  server.release();
  await settled(page, 2);
  assert.deepEqual(await lines(page), ["look_up | reseed, limit: 3 | failed · time"]);
  const inside = page.locator("details.call:visible");
  assert.equal(await inside.getAttribute("open"), "", "anything unfolded stays so");
  assert.match(await inside.innerText(), /Arguments\s+\{\s+"query": "reseed",\s+"limit": 3\s+\}\s+Result\s+no such tool/);
  await page.reload();
  await settled(page, 2);
  assert.deepEqual(await lines(page), ["look_up | reseed, limit: 3 | failed · time"]);
});

onPage("a card asks, shows exactly the call, and a button allows it", { wordMillis: 1 }, async ({ page, server }) => {
  const answers = spied(server, "approval_response");
  await say(page, "approve this");
  const card = await asks(page);
  assert.equal(await page.evaluate(() => document.activeElement.dataset.approval !== undefined), true, "nothing was being written: the card has the focus");
  const text = await card.innerText();
  for (const part of [/Allow the tool shell\?/, /may destroy what it changes/, /"build ⟨U\+202E⟩txt"/, /"workdir": "\."/, /Without an answer until/, /Alt\+Y allow once/]) assert.match(text, part);
  assert.deepEqual(await card.locator(".answers button").allInnerTexts(), ["Allow once", "Allow always", "Reject", "Reject always"]);
  assert.match(await page.title(), /^\(!\)/);
  assert.deepEqual(await lines(page), ["shell | rm -r \"build ⟨U+202E⟩txt\", . | waits for approval"]);
  assert.match(await page.locator("#announcer").textContent(), /^The tool shell waits for your approval/);
  for (const key of ["Enter", "Space"]) await page.keyboard.press(key);
  assert.deepEqual(answers, [], "neither key allows");
  await card.locator("button", { hasText: "Allow once" }).click();
  await card.waitFor({ state: "detached" });
  await settled(page, 2);
  const [{ review, argumentsHash }] = answers;
  assert.deepEqual([answers.length, review, argumentsHash], [1, "allow_once", "ab".repeat(32)]);
  assert.deepEqual(await lines(page), ["shell | rm -r \"build ⟨U+202E⟩txt\", . | done · time"]);
  assert.equal(await page.evaluate(() => document.activeElement.id), "input", "typing continues");
  assert.equal(await page.locator(".toast").count(), 0);
});

onPage("keys answer only with Alt, and typing continues in the message field", { wordMillis: 1 }, async ({ page, server }) => {
  const answers = spied(server, "approval_response");
  await say(page, "approve this");
  const card = await asks(page);
  await page.keyboard.type("yes");
  assert.equal(await page.inputValue("#input"), "yes");
  assert.deepEqual(answers, []);
  await page.keyboard.press("Alt+y");
  assert.deepEqual(answers, [], "the card no longer has the focus");
  await card.locator(".field").fill("not today");
  await page.keyboard.press("Alt+r");
  await settled(page, 2);
  assert.deepEqual(answers.map(({ review, customDenyMessage }) => [review, customDenyMessage]), [["reject_always", "not today"]]);
  assert.deepEqual(await lines(page), ["shell | rm -r \"build ⟨U+202E⟩txt\", . | not run"]);
  // The standing approval applies.
  await page.fill("#input", "");
  await say(page, "approve this");
  await settled(page, 4);
  assert.equal(answers.length, 1);
});

onPage("a card that arrives during typing takes no focus", {}, async ({ page, server }) => {
  await say(page, "one");
  await settled(page, 1);
  await page.fill("#input", "half a sen");
  const [world] = server.worlds.values();
  world.say("approve this");
  void server.turn(world, []);
  await asks(page);
  assert.equal(await page.evaluate(() => document.activeElement.id), "input");
  await page.click("#stop");
  await page.waitForSelector(".approval", { state: "detached" });
  assert.equal(await page.inputValue("#input"), "half a sen");
});

onPage("a patch is shown as text, and Enter after a message rejects", { wordMillis: 1 }, async ({ page, server }) => {
  const answers = spied(server, "approval_response");
  await say(page, "approve this patch");
  const card = await asks(page);
  assert.deepEqual(await card.locator(".exact .added, .exact .removed").allInnerTexts(), ["-old <b>line</b>\n", "+new line\n"]);
  assert.equal(await card.locator("b").count(), 0);
  await card.locator(".field").press("Enter");
  assert.deepEqual(answers, [], "without a message the key decides nothing");
  await card.locator(".field").fill("leave it");
  await card.locator(".field").press("Enter");
  await settled(page, 2);
  assert.deepEqual(answers.map(({ review, customDenyMessage }) => [review, customDenyMessage]), [["reject_once", "leave it"]]);
});

onPage("another window answers, and nobody answers", { wordMillis: 1 }, async ({ page, server, url }) => {
  await say(page, "approve this");
  await asks(page);
  const other = await newPage(page.context());
  await other.page.goto(page.url());
  const there = await asks(other.page);
  await there.locator("button", { hasText: "Allow always" }).click();
  await settled(page, 2);
  await page.waitForSelector(".toast:has-text('The tool shell was always allowed in another window.')");
  assert.equal(await other.page.locator(".toast").count(), 0);
  await other.page.close();
  assert.deepEqual(other.faults, []);
  assert.ok(url);
  const [world] = server.worlds.values();
  world.updateStanding([]);
  await say(page, "approve this");
  await asks(page);
  world.decide(world.approvals[0], { outcome: "expired" });
  await page.waitForSelector(".toast:has-text('Nobody answered in time: the tool shell was not run.')");
  await page.waitForSelector(".approval", { state: "detached" });
});

onPage("the tools, their tokens and switches, and the standing approvals", { wordMillis: 1 }, async ({ page, server }) => {
  server.tools = TOOLS;
  await say(page, "approve this");
  await (await asks(page)).locator("button", { hasText: "Allow always" }).click();
  await settled(page, 2);
  await say(page, "/tools");
  const dialog = page.locator("dialog.tools");
  await dialog.locator("text=4 tools, all switched on: about 385 tokens in every request.").waitFor();
  assert.deepEqual(await dialog.locator("h3").allInnerTexts(), ["Of this server", "files", "Of programs connected to this chat", "Your lasting answers"]);
  assert.deepEqual(await dialog.locator(".facts").allInnerTexts(), ["may destroy · 182 tokens", "only reads · 74 tokens", "71 tokens", "58 tokens"]);
  const weather = dialog.getByRole("switch", { name: "weather" });
  await weather.focus();
  await page.keyboard.press("Space");
  await dialog.locator("text=4 tools, 3 switched on: about 327 tokens in every request.").waitFor();
  assert.equal(await weather.isChecked(), false);
  assert.equal(await page.evaluate(() => document.activeElement.dataset.of), "weather");
  await dialog.locator("button", { hasText: "Switch all off" }).click();
  await dialog.locator("text=4 tools, 1 switched on: about 182 tokens in every request.").waitFor();
  const [world] = server.worlds.values();
  assert.deepEqual(world.settings.toolsOff, ["weather", "files__read", "files__delete"]);
  await dialog.locator("button", { hasText: "Switch all on" }).click();
  await dialog.locator("text=4 tools, 3 switched on").waitFor();
  assert.match(await dialog.locator(".standing").innerText(), /Always allowed: shell\s+.*⟨U\+202E⟩/s);
  await dialog.locator("button", { hasText: "Ask again" }).click();
  await dialog.locator(".standing").waitFor({ state: "detached" });
  assert.deepEqual(world.standing, []);
  await page.keyboard.press("Escape");
  await dialog.waitFor({ state: "detached" });
});

onPage("MCP servers are listed with their states, even without tools, and are polled until they run", {}, async ({ page, server }) => {
  const long = "Reads a file, whatever its size. ".repeat(20);
  server.tools = [...TOOLS.slice(0, 2), { ...TOOLS[2], description: long }, TOOLS[3]];
  server.toolServers = [
    { name: "<b>calendar</b>", prefix: "_b_calendar__b_", state: "failing", failure: "unreachable", restarts: 2 },
    { name: "files", prefix: "files", state: "ready", restarts: 0 },
    { name: "mail", state: "disabled", restarts: 0 },
    { name: "new", prefix: "new", state: "dancing", failure: "fell", restarts: 1 },
  ];
  await say(page, "hello");
  await settled(page, 1);
  await say(page, "/tools");
  const dialog = page.locator("dialog.tools");
  await dialog.locator("[role=switch]").first().waitFor();
  const groups = () => dialog.locator("section .tool-group > div").evaluateAll((all) => all.map((node) => [...node.children].map((child) => child.textContent).join(" | ")));
  assert.deepEqual(await groups(), [
    "Of this server", "files | running | 2 tools · 145 tokens",
    "<b>calendar</b> | not running: it cannot be reached · it is tried again · started again 2 times",
    "mail | switched off", "new | dancing · started again once", "Of programs connected to this chat",
  ]);
  const more = dialog.locator(".description button:visible");
  assert.equal(await more.count(), 1, "short descriptions need no button");
  await more.click();
  assert.equal(await dialog.locator(".description p", { hasText: "whatever its size" }).evaluate((node) => node.scrollHeight <= node.clientHeight + 1), true);
  server.toolServers = [{ name: "calendar", prefix: "calendar", state: "ready", restarts: 3 }];
  server.tools = [...server.tools, { name: "calendar__today", description: "What is on today.", place: "server", tokens: 40 }];
  await dialog.locator("section", { hasText: "calendar__today" }).locator(".about.ready", { hasText: "running · started again 3 times" }).waitFor();
  assert.equal(await dialog.locator(".description button[aria-expanded=true]").count(), 1, "anything unfolded stays so");
  const got = spied(server, "list_tools");
  await page.keyboard.press("Escape");
  await dialog.waitFor({ state: "detached" });
  assert.deepEqual(got, []);
});

onPage("on a phone the card and the tools fit", { touch: true, viewport: SCREENS.phone, wordMillis: 1 }, async ({ page, server }) => {
  server.tools = TOOLS;
  await say(page, "approve this");
  const card = await asks(page);
  const fits = () => page.evaluate(() => document.documentElement.scrollWidth <= innerWidth && [...document.querySelectorAll(".approval button, .approval input, dialog.tools input, dialog.tools button:not([hidden])")].every((node) => {
    const { left, right, height } = node.getBoundingClientRect();
    return left >= 0 && right <= innerWidth && height > 0;
  }));
  assert.equal(await fits(), true);
  const heights = await card.locator(".answers button").evaluateAll((all) => all.map((node) => node.getBoundingClientRect().height));
  assert.ok(heights.every((height) => height >= 44), String(heights));
  assert.equal(await card.locator(".by-key").isVisible(), false);
  await card.locator("button", { hasText: "Allow once" }).tap();
  await settled(page, 2);
  await say(page, "/tools");
  await page.locator("dialog.tools [role=switch]").first().waitFor();
  assert.equal(await fits(), true);
});
