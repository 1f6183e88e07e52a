/** Compaction, preview, undo, pins and strategies, in the page on the real server. */

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { conversation, launch, newPage, say, settled } from "./browser.mjs";
import { Server } from "./server.mjs";
import { pin, preview, talk } from "./steps.mjs";

/** Console messages of the browser while the server is down; tests of that expect them. */
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

const number = (text) => Number(text.replace(/\D/g, ""));
const used = async (page) => number((await page.innerText("#gauge-button .tokens")).split("/")[0]);

/** Has a chat long enough for a compaction to be worthwhile. */
async function longTalk(page) {
  await talk(page, ["My favourite bird is the wryneck.", ...Array.from({ length: 5 }, (_, turn) => `Write 500 words about day ${turn + 1}`)]);
}

onPage("a compaction is previewed, applied and undone across a restart", { expected: AWAY }, async ({ page, server }) => {
  await longTalk(page);
  await pin(page, ".message.user", 1);
  const before = await used(page);
  await preview(page, "mind the birds");
  const told = (await page.innerText("dialog .preview .sum")).match(/([\d,]+) → ([\d,]+)/).slice(1).map(number);
  assert.equal(told[0], before);
  assert.ok(told[1] < told[0]);
  const fates = await page.locator("dialog .side").first().locator(".fate").allInnerTexts();
  assert.equal(fates.length, 12);
  // The server's counts match the marks.
  const count = (fate) => fates.filter((one) => one === fate).length;
  const facts = await page.innerText("dialog .preview .facts");
  assert.match(facts, new RegExp(`Goes: ${count("goes")} messages?, [\\d,]+ tokens`));
  assert.match(facts, new RegExp(`Stays: ${count("stays")} messages?, [\\d,]+ tokens`));
  assert.equal(fates[2], "stays", "what is pinned");
  assert.match(await page.innerText("dialog li.new"), /What the user said, word for word:[^]*wryneck[^]*What was answered and done:/);
  assert.equal(await page.locator("#log .compaction").count(), 0);
  await page.click("dialog button:has-text('Apply')");
  await page.waitForSelector("#log .compaction");
  await page.waitForFunction((tokens) => Number(document.querySelector("#gauge-button .tokens").textContent.split("/")[0].replace(/\D/g, "")) === tokens, told[1]);
  await page.locator("#log .compaction summary").click();
  assert.match(await page.innerText("#log .compaction .facts"), /Why: asked for\s+How: a summary by the model/);
  await talk(page, ["What is my favourite bird?"], 6);
  await server.end("SIGKILL");
  await server.start();
  await page.waitForFunction(() => document.querySelector("#connection-line").hidden);
  assert.equal(await page.locator("#log .pin-chip:not([hidden])").count(), 1);
  await page.click("#log .undo-row button");
  await page.waitForSelector("#log .compaction.undone");
  // The counts before and after are separate estimates.
  await page.waitForFunction((tokens) => Number(document.querySelector("#gauge-button .tokens").textContent.split("/")[0].replace(/\D/g, "")) > tokens, (told[0] + told[1]) / 2);
  const shown = await conversation(page);
  await page.reload();
  await page.waitForFunction((rows) => document.querySelectorAll("#log > li").length === rows, shown.length);
  await page.waitForSelector("#log .compaction.undone");
  await page.locator("#log .compaction summary").click();
  assert.match(await page.innerText("#log .compaction .facts"), /Why: asked for\s+How: a summary by the model/, "its entry keeps how it was made");
  assert.equal(await page.locator("#log .undo-row button").count(), 0);
  await page.click("#gauge-button");
  assert.match(await page.innerText("#breakdown .breaker"), /A compaction was undone/);
  await say(page, "/undo");
  await page.waitForSelector(".toast.error:has-text('nothing_to_undo')");
});

onPage("a compaction by another window is shown here, and can be undone here", {}, async ({ page }) => {
  await longTalk(page);
  await preview(page, "");
  const { page: other, faults } = await newPage(browser.context);
  await other.goto(page.url());
  await settled(other, 6);
  await say(other, "/compact");
  for (const window of [page, other]) await window.waitForSelector("#log .compaction");
  // The chat has changed since the preview was made.
  await page.click("dialog button:has-text('Apply')");
  await page.waitForSelector("dialog .wrong:not([hidden])");
  await page.click("dialog button:has-text('Close')");
  await page.click("#log .compaction .undo-row button");
  for (const window of [page, other]) await window.waitForSelector("#log .compaction.undone");
  assert.deepEqual(faults, []);
  await other.close();
});

onPage("a background compaction stops nobody, and nobody waits", { settings: { OFFLINE_WORD_MILLIS: "3" } }, async ({ page }) => {
  await longTalk(page);
  for (let answers = 6; (await page.locator("#log .compaction").count()) === 0; answers += 1) {
    assert.ok(answers < 14, "no compaction was made");
    await say(page, "Write 300 words");
    await settled(page, answers + 1);
  }
  await page.locator("#log .compaction summary").first().click();
  assert.match(await page.innerText("#log .compaction .facts"), /Nobody waited\s+Made while you talked/);
  assert.equal(await page.locator("[data-ended], .toast").count(), 0);
});

onPage("a ready summary is shown on arrival and after a reload, and can be discarded", {}, async ({ page }) => {
  await longTalk(page);
  for (let answers = 6; (await page.locator("[data-held]").count()) === 0; answers += 1) {
    assert.ok(answers < 30, "none was prepared");
    assert.equal(await page.locator("#log .compaction").count(), 0, "it was used before it was seen");
    await say(page, "Write 200 words");
    await settled(page, answers + 1);
    await page.waitForFunction(() => !document.querySelector("[data-running=background]"));
  }
  const line = await page.innerText("[data-held] .grow");
  assert.match(line, /^A summary of older messages is ready\. It is used above [\d,]+ tokens\.$/);
  await page.reload();
  await page.waitForSelector("[data-held]");
  assert.equal(await page.innerText("[data-held] .grow"), line);
  await page.click("[data-held] button");
  await page.waitForFunction(() => !document.querySelector("[data-held]"));
  await page.reload();
  await page.waitForSelector("#log .message");
  assert.equal(await page.locator("[data-held], #log .compaction").count(), 0);
});

onPage("pins are listed, kept by a compaction, and removed", {}, async ({ page }) => {
  await longTalk(page);
  await pin(page, ".message.user", 0);
  await pin(page, ".message.assistant", 0);
  await say(page, "/compact");
  await page.waitForSelector("#log .compaction");
  await page.locator("#log .compaction summary").click();
  assert.match(await page.innerText("#log .compaction .facts"), /Kept word for word among the older: 2/);
  await page.click("#gauge-button");
  await page.click("#breakdown .pins summary");
  assert.equal(await page.locator("#breakdown .pins li").count(), 2);
  await page.locator("#breakdown .pins [aria-label=Unpin]").first().click();
  await page.waitForFunction(() => document.querySelectorAll("#breakdown .pins li").length === 1);
  await page.reload();
  await page.waitForFunction(() => document.querySelectorAll("#log .pin-chip:not([hidden])").length === 1);
  // A message that a compaction has hidden can be pinned too, and the model sees it again.
  const before = await used(page);
  await pin(page, ".message.user", 1);
  await pin(page, ".message.assistant", 1);
  await page.waitForFunction((tokens) => Number(document.querySelector("#gauge-button .tokens").textContent.split("/")[0].replace(/\D/g, "")) > tokens + 300, before);
});

onPage("a strategy is chosen live, and an invalid setting is reported", {}, async ({ page }) => {
  await talk(page, ["Count to 3"]);
  await page.click("#gauge-button");
  await page.click("#breakdown .strategy summary");
  await page.fill("#setting-target", "0");
  await page.click("#breakdown .strategy button");
  await page.waitForSelector("#breakdown .said.wrong:has-text('target must be above 0 and at most 1, not 0')");
  assert.equal(await page.evaluate(() => document.activeElement.id), "setting-target");
  await page.fill("#setting-target", "");
  await page.fill("#setting-threshold", "40");
  await page.fill("#setting-background", "50");
  await page.click("#breakdown .strategy button");
  await page.waitForFunction(() => document.querySelector("#gauge-meter .limit.hard")?.style.getPropertyValue("--at") === "40%");
  assert.equal(await page.locator("#gauge-meter .limit.soft").count(), 1);
  await page.selectOption("#strategy-name", "manual");
  await page.click("#breakdown .strategy button");
  await page.waitForFunction(() => document.querySelectorAll("#gauge-meter .limit").length === 0);
  await page.reload();
  await settled(page, 1);
  await page.click("#gauge-button");
  await page.click("#breakdown .strategy summary");
  assert.equal(await page.inputValue("#strategy-name"), "manual");
});

onPage("the page says how much of the last request had been sent before, and what it all cost", { settings: { MODEL_PRICES: "offline=1/0.5/2" } }, async ({ page }) => {
  await longTalk(page);
  await page.click("#gauge-button");
  const asked = (await page.innerText("#breakdown .sent-before")).match(/^Of ([\d,]+) tokens sent, ([\d,]+) were as in the request before/).slice(1).map(number);
  assert.ok(asked[1] > 0 && asked[1] < asked[0], asked.join(" of "));
  const facts = await page.innerText("#breakdown .facts-list");
  const paid = ["Last request", "This chat so far"].map((name) => Number(new RegExp(`${name}\\s+\\$([\\d.]+)`).exec(facts)[1]));
  assert.ok(paid[0] > 0 && paid[1] > paid[0], paid.join(" of "));
  await page.keyboard.press("Escape");
  await say(page, "/compact");
  await page.waitForSelector("#log .compaction");
  await say(page, "And now?");
  await settled(page, 7);
  await page.click("#gauge-button");
  assert.match(await page.innerText("#breakdown .sent-before"), /It parts from that at a message: older messages were summarised\. [\d,]+ of its tokens/);
  assert.match(await page.innerText(".session.current .meta"), /\$\d/);
});
