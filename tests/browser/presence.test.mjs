/** Several windows and programs in one session: who is present, and the id of each tab, on the page alone. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { countText, namesText, others } from "../../src/server/web/presence.js";
import { conversation, newPage, say, settled } from "./browser.mjs";
import { mockPages } from "./mock-page.mjs";

const onPage = mockPages();

/** Console messages of the browser while a server is down; tests of that expect them. */
const AWAY = /WebSocket connection to|net::ERR_CONNECTION_REFUSED/;

const page1 = { connectionId: "c1", clientId: "tab-1", client: { name: "reseed-web", version: "1" }, role: "writer" };
const page2 = { ...page1, connectionId: "c2", clientId: "tab-2" };
const bot = { connectionId: "c3", client: { name: "ferry-bot", version: "1.2" }, role: "observer", offers: true };
const nameless = { connectionId: "c4", role: "writer" };

test("the others are counted and named", () => {
  const table = [
    ["nobody else", [page1], "1 window", []],
    ["another window", [page1, page2], "2 windows", ["another window"]],
    ["a program that reads", [page1, bot], "1 window, 1 program", ["ferry-bot 1.2 (read-only)"]],
    ["all kinds", [bot, page2, page1, nameless], "2 windows, 2 programs", ["ferry-bot 1.2 (read-only)", "another window", "a program"]],
    ["this tab's older connection", [{ ...page1, connectionId: "c0" }, page1, page2], "2 windows", ["another window"]],
    ["a list that was cut before this connection", [page2], "2 windows", ["another window"]],
    ["a crowd", [page1, ...Array.from({ length: 12 }, (_, at) => ({ ...nameless, connectionId: `n${at}` }))], "1 window, 12 programs",
      [...Array(10).fill("a program"), "2 more"]],
  ];
  for (const [name, presence, count, names] of table) {
    const there = others(presence, "c1");
    assert.deepEqual([countText(there), namesText(there)], [count, `Also in this chat: ${names.join(", ")}`], name);
  }
});

onPage("the badge shows who else is present, while they are", { expected: AWAY }, async ({ page, server }) => {
  await say(page, "hello");
  await settled(page, 1);
  assert.equal(await page.locator("#presence").isHidden(), true);
  const other = await newPage(page.context());
  await other.page.goto(page.url());
  await page.waitForSelector("#presence:has-text('2 windows')");
  await other.page.waitForSelector("#presence:has-text('2 windows')");
  const [world] = server.worlds.values();
  world.join(bot);
  await page.waitForSelector("#presence:has-text('2 windows, 1 program')");
  assert.equal(await page.locator("#presence").getAttribute("title"), "Also in this chat: another window, ferry-bot 1.2 (read-only)");
  world.part(bot.connectionId);
  await page.waitForFunction(() => document.querySelector("#presence .who")?.textContent === "2 windows");
  // Nobody else is in a new chat.
  await other.page.click("#new-session");
  await page.waitForSelector("#presence", { state: "hidden" });
  await other.page.waitForSelector("#presence", { state: "hidden" });
  await other.page.goBack();
  await page.waitForSelector("#presence:has-text('2 windows')");
  // On a narrow screen the count suffices.
  await page.setViewportSize({ width: 360, height: 640 });
  assert.equal(await page.locator("#presence .count").innerText(), "2");
  assert.equal(await page.evaluate(() => document.documentElement.scrollWidth > innerWidth), false);
  // Without a connection nothing is known of the others; afterwards it is learned again.
  server.ws.shouldHandle = () => false;
  server.dropAll();
  await page.waitForSelector("#presence", { state: "hidden" });
  server.ws.shouldHandle = () => true;
  await page.waitForSelector("#presence:not([hidden])");
  await other.page.close();
  await page.waitForSelector("#presence", { state: "hidden" });
});

onPage("two windows write in one chat at once, and show the same", {}, async ({ page, server }) => {
  await say(page, "hello");
  await settled(page, 1);
  const other = await newPage(page.context());
  await other.page.goto(page.url());
  await settled(other.page, 1);
  await Promise.all([say(page, "from here"), say(other.page, "from there")]);
  for (const one of [page, other.page]) await settled(one, 3);
  await say(other.page, "and again");
  for (const one of [page, other.page]) await settled(one, 4);
  assert.deepEqual(await conversation(page), await conversation(other.page));
  assert.equal((await conversation(page)).length, 8);
  for (const one of [page, other.page]) assert.equal(await one.locator("#role-line").isHidden(), true);
  assert.equal(server.connections, 2);
  assert.deepEqual(other.faults, []);
  await other.page.close();
});

/** Returns the ids with which pages say hello from now on, oldest first; by then the page has said its first hello. */
async function heard(page, server) {
  await say(page, "hello");
  await settled(page, 1);
  const names = [];
  const hello = server.on_hello;
  server.on_hello = (command) => {
    names.push(command.payload.clientId);
    hello.call(server, command);
  };
  return async (count) => {
    while (names.length < count) await page.waitForTimeout(20);
    return names;
  };
}

onPage("a reload keeps the tab's id, a duplicated tab takes its own", {}, async ({ page, server }) => {
  const names = await heard(page, server);
  for (let count = 1; count <= 3; count += 1) {
    await page.reload();
    await names(count);
  }
  const opened = page.context().waitForEvent("page");
  // A window opened by a page starts with a copy of its storage, as a duplicated tab does.
  await page.evaluate(() => void window.open(location.href));
  const copy = await opened;
  const [first, second, third, fourth] = await names(4);
  assert.deepEqual([second, third], [first, first]);
  assert.notEqual(fourth, first);
  await copy.reload();
  assert.equal((await names(5))[4], fourth);
  await copy.close();
});

onPage("in a browser without locks, the tab's id is the same after a reload", {}, async ({ page, server }) => {
  const names = await heard(page, server);
  await page.addInitScript(() => Object.defineProperty(navigator, "locks", { value: undefined }));
  await page.reload();
  const [first] = await names(1);
  await page.reload();
  assert.equal((await names(2))[1], first);
});

onPage("a chat with an unreadable part is shown, and cannot be written to", {}, async ({ page, server }) => {
  await say(page, "hello");
  await settled(page, 1);
  const shown = await conversation(page);
  const [world] = server.worlds.values();
  server.damaged.add(world.sessionId);
  await page.reload();
  await page.waitForSelector("#role-line:has-text('cannot be read any more')");
  assert.deepEqual(await conversation(page), shown);
  assert.equal(await page.locator("#input").isDisabled(), true);
  assert.equal(await page.locator("#role-line button").count(), 0);
  await page.click("#new-session");
  await page.waitForSelector("#role-line", { state: "hidden" });
  await say(page, "another one");
  await settled(page, 1);
});
