/** Branches, the queue and the session list on the real server, in a real Chromium. */

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { conversation, launch, newPage, say, settled } from "./browser.mjs";
import { Server } from "./server.mjs";
import { act, edit, shows, talk, treeRows } from "./steps.mjs";

/** Console messages of the browser while the server is down. */
const AWAY = /WebSocket connection to|net::ERR_CONNECTION_REFUSED/;

let browser;
before(async () => (browser = await launch()));
after(() => browser.close());

/** Runs a test on a fresh server and page, and then checks for faults that must never occur. */
function onPage(name, { settings, ...options }, body) {
  test(name, async () => {
    const server = new Server(settings);
    try {
      const url = await server.start();
      const { page, faults } = await newPage(browser.context, options);
      await page.goto(url);
      await body({ page, server, url });
      assert.deepEqual(faults, []);
      await page.close();
    } finally {
      await server.remove();
    }
  });
}

/** Opens a second window on the same session. */
async function second(page) {
  const other = await newPage(browser.context);
  await other.page.goto(page.url());
  return other;
}

/** Presses a button of the nth message of a kind. */
async function press(page, kind, index, label) {
  const row = page.locator(`#log .message.${kind}`).nth(index);
  await act(row, label);
}

onPage("asking again creates a branch; its versions can be switched; a reload and a killed server leave it where it was", { expected: AWAY }, async ({ page, server }) => {
  await talk(page, ["Count to 3", "Count to 4"]);
  await edit(page, 1, "Count to 5");
  await shows(page, ["Count to 3", "Count to 5"]);
  await settled(page, 2);
  assert.match((await conversation(page)).at(-1), /1, 2, 3, 4, 5/);
  await press(page, "assistant", 1, "Regenerate");
  await page.waitForSelector("#log .assistant .siblings .count:has-text('2/2')");
  assert.match((await conversation(page)).at(-1), /1, 2, 3, 4, 5/);
  await page.waitForSelector("#log .siblings .count:has-text('2/2')");
  await page.click("#log [aria-label='Earlier version']");
  await shows(page, ["Count to 3", "Count to 4"]);
  const shown = await conversation(page);
  await page.reload();
  await page.waitForSelector("#log .siblings .count:has-text('1/2')");
  assert.deepEqual(await conversation(page), shown);
  await server.end("SIGKILL");
  await page.waitForSelector("#connection-line:has-text('lost')");
  await server.start();
  await page.reload();
  await page.waitForSelector("#log .siblings .count:has-text('1/2')");
  assert.deepEqual(await conversation(page), shown);
  await say(page, "Count to 6");
  await settled(page, 3);
  await shows(page, ["Count to 3", "Count to 4", "Count to 6"]);
});

onPage("the tree panel shows the branches and moves to them, with a summary of the abandoned one", {}, async ({ page }) => {
  await talk(page, ["My favourite bird is the wryneck.", "Count to 4"]);
  await edit(page, 1, "Count to 5");
  await shows(page, ["My favourite bird is the wryneck.", "Count to 5"]);
  await settled(page, 2);
  await page.click("#tree-open");
  const rows = await treeRows(page);
  assert.deepEqual([rows.length, rows[0], rows[2], rows[4]], [6, "My favourite bird is the wryneck.", "Count to 4", "Count to 5"]);
  assert.match(rows[5], / <$/);
  await page.click("#tree-rows li:nth-child(3)");
  await page.check("dialog [name=summarize]");
  await page.fill("dialog .summary-choice .field", "the numbers");
  await page.click("dialog .primary");
  await shows(page, ["My favourite bird is the wryneck.", "Count to 4"]);
  await page.waitForSelector("#log .fold:has-text('Summary of the branch that was left')");
  await page.waitForSelector("#tree-rows .branch_summary[aria-current=true]");
  assert.match(await page.locator("#log .fold").textContent(), /Count to 5/);
  const shown = await treeRows(page);
  await page.reload();
  await page.click("#tree-open");
  await page.waitForSelector("#tree-rows .branch_summary[aria-current=true]");
  await page.waitForFunction((count) => document.querySelectorAll("#tree-rows > li").length === count, shown.length);
  assert.deepEqual(await treeRows(page), shown);
});

onPage("asking again during a turn stops it; continuing from an answer, and back again", { settings: { OFFLINE_WORD_MILLIS: "20" } }, async ({ page }) => {
  await say(page, "Count to 3");
  await settled(page, 1);
  await say(page, "Write 3000 words");
  await page.waitForFunction(() => (document.querySelector("#tail .parts")?.innerText ?? "").split(/\s+/).length > 10);
  await say(page, "Count to 9");
  await page.waitForSelector("[data-queued]");
  const row = page.locator("#log .message.user").nth(1);
  await act(row, "Edit and ask again");
  await row.locator("textarea").fill("Count to 4");
  await row.locator("button:has-text('Stop and ask again')").click();
  await shows(page, ["Count to 3", "Count to 4"]);
  await settled(page, 2);
  assert.equal(await page.inputValue("#input"), "Count to 9");
  await press(page, "assistant", 0, "Continue from here");
  await page.click("dialog .primary");
  await shows(page, ["Count to 3"]);
  await page.waitForSelector(".elsewhere:has-text('in 2 ways')");
  await page.click(".elsewhere button:has-text('Go back to the newest')");
  await shows(page, ["Count to 3", "Count to 4"]);
});

onPage("queued inputs are taken back, reordered and sent into the running turn", { settings: { OFFLINE_WORD_MILLIS: "20" } }, async ({ page }) => {
  await say(page, "Write 3000 words");
  await page.waitForFunction(() => (document.querySelector("#tail .parts")?.innerText ?? "").split(/\s+/).length > 5);
  for (const text of ["Count to 3", "Count to 4", "Count to 5"]) await say(page, text);
  await page.waitForFunction(() => document.querySelectorAll("[data-queued]").length === 3);
  const order = (texts) => page.waitForFunction((expected) => [...document.querySelectorAll("[data-queued] .bubble")].map((node) => node.innerText).join() === expected, texts);
  await page.locator("[data-queued]").nth(2).locator("[aria-label='Send earlier']").click();
  await order("Count to 3,Count to 5,Count to 4");
  await page.locator("[data-queued]").nth(0).locator("[aria-label='Take it back']").click();
  await order("Count to 5,Count to 4");
  assert.equal(await page.inputValue("#input"), "Count to 3");
  await page.click("#steer");
  await order("Count to 3,Count to 5,Count to 4");
  await page.waitForSelector("[data-queued]:has-text('Goes with the next request')");
  await page.reload();
  await order("Count to 3,Count to 5,Count to 4");
  await page.click("#stop");
  await settled(page, 4);
  await shows(page, ["Write 3000 words", "Count to 3", "Count to 5", "Count to 4"]);
});

onPage("a pressed button stays in place until it is released, for a moment", { settings: { OFFLINE_WORD_MILLIS: "20" } }, async ({ page }) => {
  let deltas = 0;
  page.on("websocket", (socket) => socket.on("framereceived", ({ payload }) => (deltas += String(payload).includes('"item_delta"') ? 1 : 0)));
  await page.reload();
  // This test decides when the timer fires, however busy the machine is.
  await page.evaluate(() => {
    const { setTimeout } = window;
    window.setTimeout = (call, millis, ...rest) => {
      const isOfFrames = millis === 1000 && String(call).includes("pressed");
      if (isOfFrames) window.passes = call;
      return isOfFrames ? setTimeout(() => undefined, 0) : setTimeout(call, millis, ...rest);
    };
  });
  const more = async (count) => {
    const from = deltas;
    while (deltas < from + count) await page.evaluate(() => new Promise(requestAnimationFrame));
    await page.evaluate(() => new Promise(requestAnimationFrame));
  };
  // The button may have moved since the pointer was placed on it.
  const press = async (button) => {
    for (;;) {
      await button.hover();
      await page.mouse.down();
      if (await button.evaluate((node) => node.matches(":active"))) return;
      await page.mouse.up();
    }
  };
  const shown = () => page.evaluate(() => document.querySelector("#tail .parts").innerText.length);
  const grows = (before) => page.waitForFunction((length) => document.querySelector("#tail .parts").innerText.length > length, before);
  await say(page, "Write 3000 words");
  await page.waitForFunction(() => (document.querySelector("#tail .parts")?.innerText ?? "").split(/\s+/).length > 5);
  await say(page, "Count to 3");
  await press(page.locator("[data-queued] [aria-label='Take it back']"));
  const pressed = await shown();
  // More than a line of words, which would have moved the button.
  await more(15);
  assert.equal(await shown(), pressed);
  await page.mouse.up();
  await page.waitForFunction(() => document.querySelector("[data-queued]") === null);
  assert.equal(await page.inputValue("#input"), "Count to 3");
  await grows(pressed);
  // A longer press delays nothing.
  await press(page.locator("#stop"));
  const held = await shown();
  await more(3);
  assert.equal(await shown(), held);
  await page.evaluate(() => window.passes());
  await grows(held);
  await page.mouse.up();
  await settled(page, 1);
});

onPage("labels and forks", {}, async ({ page }) => {
  await talk(page, ["Count to 3", "Count to 4"]);
  await press(page, "assistant", 0, "Label");
  await page.fill("dialog input", "the start");
  await page.press("dialog input", "Enter");
  await page.waitForSelector("#log .note:has-text('Label “the start”')");
  await page.waitForSelector("#log .label-chip:has-text('the start')");
  const from = page.url();
  await press(page, "user", 1, "Fork into a new chat");
  await page.waitForFunction((url) => location.href !== url, from);
  await shows(page, ["Count to 3"]);
  assert.equal(await page.inputValue("#input"), "Count to 4");
  await page.waitForSelector("#log .label-chip:has-text('the start')");
  await page.press("#input", "Enter");
  await settled(page, 2);
  await page.waitForFunction(() => document.querySelectorAll("#sessions .session").length === 2);
  await page.goto(from);
  await shows(page, ["Count to 3", "Count to 4"]);
});

onPage("the list follows changes in another window", { settings: { OFFLINE_WORD_MILLIS: "20" } }, async ({ page, url }) => {
  const { page: other, faults } = await newPage(browser.context);
  await other.goto(url);
  await other.waitForSelector("#connection-line", { state: "hidden" });
  await say(page, "Write 3000 words");
  await other.waitForSelector("#sessions .session:has-text('Write 3000 words') .busy");
  await page.click("#stop");
  await other.waitForSelector("#sessions .session .busy", { state: "detached" });
  await say(page, "/rename Birds");
  await other.waitForSelector("#sessions .name:has-text('Birds')");
  await page.hover("#sessions .current");
  await page.click("#sessions .current [aria-label^=Delete]");
  await page.click("dialog .danger");
  await other.waitForSelector("#sessions-empty:not([hidden])");
  assert.deepEqual(faults, []);
  await other.close();
});

onPage("two windows edit and move in one chat, and see what the other does", {}, async ({ page }) => {
  await talk(page, ["Count to 3", "Count to 4"]);
  const { page: other, faults } = await second(page);
  await settled(other, 2);
  await edit(page, 1, "Count to 5");
  await shows(other, ["Count to 3", "Count to 5"]);
  await settled(other, 2);
  await other.click("#log [aria-label='Earlier version']");
  await shows(page, ["Count to 3", "Count to 4"]);
  await page.click("#log [aria-label='Later version']");
  for (const window of [page, other]) await shows(window, ["Count to 3", "Count to 5"]);
  assert.deepEqual(await conversation(other), await conversation(page));
  assert.deepEqual(faults, []);
  await other.close();
});

onPage("the first question is asked differently from the root, with and without a summary", {}, async ({ page }) => {
  await talk(page, ["Count to 3"]);
  const { page: other, faults } = await second(page);
  await settled(other, 1);
  await edit(page, 0, "Count to 4");
  for (const window of [page, other]) {
    await shows(window, ["Count to 4"]);
    await settled(window, 1);
    await window.waitForSelector("#log .siblings .count:has-text('2/2')");
  }
  await page.click("#log [aria-label='Earlier version']");
  await shows(other, ["Count to 3"]);
  // With a summary, the session is at the root while the question is in flight.
  const row = page.locator("#log .message.user").first();
  await act(row, "Edit and ask again");
  await row.locator(".editor input[type=checkbox]").check();
  await row.locator(".editor textarea").fill("Count to 5");
  await row.locator(".editor textarea").press("Enter");
  for (const window of [page, other]) {
    await shows(window, ["Count to 5"]);
    await settled(window, 1);
    await window.waitForSelector("#log .message:has-text('Summary of the branch that was left')");
  }
  await page.reload();
  await shows(page, ["Count to 5"]);
  assert.deepEqual(faults, []);
  await other.close();
});
