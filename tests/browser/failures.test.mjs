/** What people see of failures: in the chat, permanently, and in plain language. */

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";
import * as client from "../../src/server/web/client.js";
import { explain, explainError, isTold } from "../../src/server/web/errors.js";
import { say, settled } from "./browser.mjs";
import { SCREENS, mockPages } from "./mock-page.mjs";

const onPage = mockPages();

/** Words of the protocol and of programming that nobody should have to know. */
const JARGON = /_|\b(?:sessions?|turns?|commands?|payload|seq|rungs?|epoch|envelope|JSON|UUID|frames?)\b/i;

test("every error has an explanation in plain language", async () => {
  const table = await readFile(new URL("../../protocol/ERRORS.md", import.meta.url), "utf8");
  const codes = [...table.split("# Close codes")[0].matchAll(/^\| `([a-z_]+)` \|/gm)].map(([, code]) => code);
  assert.ok(codes.length > 50);
  for (const code of [...codes, "one_of_tomorrow"]) {
    const { text, details } = explain({ code, message: "send retry_turn", retriable: true, retryAfterMs: 2500 });
    assert.doesNotMatch(text, JARGON, code);
    assert.match(text, /^[A-Z].*\. The server asks to wait 3 s\.$/);
    assert.equal(details, `${code}: send retry_turn`);
  }
  // Errors that a person can cause have their own explanation.
  const plain = explain({ code: "one_of_tomorrow", message: "", retriable: false }).text;
  const own = codes.filter((code) => explain({ code, message: "" }).text !== plain);
  for (const code of codes.filter((one) => /^(?:upstream|compaction|context|store|hook|queue|turn|preview|nothing_to|too_many|unknown_(?:model|strategy)|input_too)/.test(one))) assert.ok(own.includes(code), code);
});

test("the client's own errors have an explanation in plain language, once", () => {
  const errors = Object.values(client).filter((one) => one?.prototype instanceof Error && one !== client.CommandError);
  assert.ok(errors.length > 6);
  for (const Fault of errors) {
    const error = new Fault("user_input has 2 bytes too many");
    const { text, details } = explainError(error);
    // The page learns of these in another way.
    if (["ClientClosed", "SessionEnded", "TurnFailed"].includes(error.name)) continue;
    assert.doesNotMatch(text, JARGON, error.name);
    assert.match(text, /^[A-Z].*\.$/);
    assert.equal(details, `${error.name}: ${error.message}`);
  }
  const lost = new client.ConnectionLost("lost");
  assert.deepEqual([isTold(lost, false), isTold(lost, true), isTold(new client.SessionEnded("deleted"), true)], [true, false, true]);
});

onPage("a delay of the model's server counts down, is announced once, and disappears when the answer starts", {}, async ({ page, server }) => {
  const spoken = await page.evaluateHandle(() => {
    const said = [];
    new MutationObserver(() => said.push(document.querySelector("#announcer").textContent)).observe(document.querySelector("#announcer"), { childList: true });
    return said;
  });
  await say(page, "it is crowded, held");
  const seconds = async () => Number(/^The model’s provider is getting too many requests\. Trying again in (\d+) s…$/.exec(await page.innerText("#tail .delayed"))[1]);
  await page.waitForSelector("#tail .delayed");
  const first = await seconds();
  assert.ok(first <= 60);
  await page.waitForFunction((before) => !document.querySelector("#tail .delayed").textContent.includes(` ${before} s`), first);
  assert.ok(await seconds() < first);
  assert.deepEqual(await spoken.jsonValue(), ["The model’s provider is getting too many requests. Trying again in 60 seconds."]);
  server.release();
  await page.waitForSelector("#tail .delayed", { state: "detached" });
  await settled(page, 1);
});

onPage("a failure stays in the chat after the next question, and after a reload", {}, async ({ page }) => {
  await say(page, "please fail");
  await page.waitForSelector("[data-ended=failed]");
  assert.equal(await page.locator("[data-trace]").count(), 0);
  await say(page, "go on");
  await settled(page, 2);
  assert.equal(await page.locator("[data-ended]").count(), 0);
  const order = () => page.locator("#log > li").evaluateAll((rows) => rows.map((row) => (row.hasAttribute("data-trace") ? "trace" : row.className.split(" ")[1])));
  const expected = ["user", "assistant", "trace", "user", "assistant"];
  assert.deepEqual(await order(), expected);
  assert.match(await page.innerText("[data-trace]"), /^The answer broke off in the middle\. Try again\.\s*Details\s*Try again$/);
  await page.click("[data-trace] summary");
  assert.equal(await page.innerText("[data-trace] code"), "upstream_truncated: the answer stopped in the middle");
  await page.reload();
  await page.waitForSelector("#log .assistant");
  assert.deepEqual(await order(), expected);
  await page.click("[data-trace] button");
  await settled(page, 3);
  assert.deepEqual(await order(), [...expected, "user", "assistant"]);
  assert.equal(await page.locator("[data-trace] button").count(), 0);
  assert.doesNotMatch(await page.innerText("body"), /upstream_truncated|retry_turn/);
});

onPage("a retried failure stays, several of a kind as one line", {}, async ({ page, server }) => {
  await say(page, "hello");
  await settled(page, 1);
  const [world] = server.worlds.values();
  world.say("and now?", "command-00000009");
  for (let tries = 1; tries <= 3; tries += 1) {
    world.startTurn();
    world.finishTurn("failed", { code: "upstream_overloaded", message: "503", retriable: true });
  }
  await page.waitForSelector("[data-trace]:has-text('(2 times)')");
  await page.click("[data-ended] button");
  await settled(page, 2);
  await page.waitForSelector("[data-trace]:has-text('overloaded. (3 times)')");
  assert.equal(await page.locator("[data-trace]").count(), 1);
});

onPage("a stopped answer is marked once", { wordMillis: 15 }, async ({ page, server }) => {
  await say(page, "a long one, slowly");
  await page.waitForFunction(() => /Sentence 2/.test(document.querySelector("#tail")?.innerText));
  await page.keyboard.press("Escape");
  await page.waitForSelector("[data-ended=cancelled]:has-text('This answer was stopped.')");
  server.wordMillis = 0;
  await say(page, "go on");
  await settled(page, 2);
  assert.equal(await page.locator("[data-trace]").count(), 0);
  assert.equal(await page.locator("#log .mark.cut:has-text('Stopped here')").count(), 1);
});

onPage("a compaction that fails leaves a line in the chat", {}, async ({ page, server }) => {
  await say(page, "hello");
  await settled(page, 1);
  const [world] = server.worlds.values();
  const failed = (code, background = false) => {
    world.startCompaction("threshold", background);
    world.failCompaction(code, "ModelSummary: not_smaller");
  };
  failed("compaction_void");
  failed("upstream_error", true);
  failed("upstream_error");
  await page.waitForSelector("[data-trace]:has-text('server failed')");
  await say(page, "go on");
  await settled(page, 2);
  assert.equal(await page.locator("[data-trace]").count(), 1);
  assert.doesNotMatch(await page.innerText("#log"), /not_smaller/);
  await page.reload();
  await page.waitForSelector("#log > li:nth-child(3)[data-trace]:has-text('server failed')");
  assert.equal(await page.locator("[data-trace]").count(), 1);
});

onPage("a requested compaction that gains nothing says so; an automatic one is quiet", {}, async ({ page, server }) => {
  await say(page, "hello");
  await settled(page, 1);
  const [world] = server.worlds.values();
  for (const trigger of ["threshold", "manual"]) {
    world.startCompaction(trigger);
    world.failCompaction("nothing_to_compact", "ModelSummary: not_smaller");
  }
  await page.waitForSelector(".toast.info:has-text('nothing worth summarising')");
  assert.equal(await page.locator(".toast").count(), 1);
  assert.equal(await page.locator("[data-trace]").count(), 0);
});

onPage("the notice about a command disappears when something else is sent", {}, async ({ page }) => {
  await say(page, "hello");
  await settled(page, 1);
  await say(page, "/nonsense");
  await page.waitForSelector(".toast.error:has-text('/nonsense')");
  await say(page, "then not");
  await page.waitForSelector(".toast", { state: "detached" });
});

for (const [name, viewport] of Object.entries(SCREENS)) {
  onPage(`notices cover nothing and disappear with the chat: ${name}`, { viewport, touch: name === "phone" }, async ({ page }) => {
    await page.click("#notice-line button");
    await say(page, "a long one");
    await settled(page, 1);
    for (let tries = 0; tries < 4; tries += 1) {
      await say(page, "/compact");
      await page.waitForSelector(".toast.error");
      await say(page, `/none${tries === 0 ? "" : "such"}`);
      await page.fill("#input", "");
    }
    const covered = await page.evaluate(() => {
      const boxes = [...document.querySelectorAll(".toast")].map((node) => node.getBoundingClientRect());
      const chat = document.querySelector("#chat").getBoundingClientRect();
      const field = document.querySelector(".composer-box").getBoundingClientRect();
      const over = (a, b) => a.top < b.bottom - 1 && b.top < a.bottom - 1;
      return { toasts: boxes.length > 1, over: boxes.some((box) => over(box, chat) && box.bottom > chat.bottom + 1), seen: field.bottom <= innerHeight && chat.height > 40,
        apart: document.querySelector("#toasts").getBoundingClientRect().top >= chat.bottom - 1 };
    });
    assert.deepEqual(covered, { toasts: true, over: false, seen: true, apart: true });
    // The end of the chat is in view above them, from the next frame on.
    await page.waitForFunction(() => {
      const { scrollTop, scrollHeight, clientHeight } = document.querySelector("#chat");
      return scrollHeight - scrollTop - clientHeight <= 1;
    });
    if (viewport.width <= 760) await page.click("#sidebar-open");
    await page.click("#new-session");
    await page.waitForSelector("#welcome:not([hidden])");
    assert.equal(await page.locator(".toast").count(), 0);
  });
}

onPage("the page uses no protocol terms", { wordMillis: 6 }, async ({ page }) => {
  const texts = async () => page.evaluate(() => {
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    const found = [];
    for (let node = walker.nextNode(); node; node = walker.nextNode()) {
      if (!node.parentElement.closest(".bubble, .parts, code, .details, script, dt, #notice-line, .name, #title, .facts-list dd, option")) found.push(node.data);
    }
    for (const node of document.querySelectorAll("[title], [aria-label], [placeholder]")) {
      for (const name of ["title", "aria-label", "placeholder"]) if (node.hasAttribute(name)) found.push(node.getAttribute(name));
    }
    return found;
  });
  const check = async (where) => {
    for (const text of await texts()) assert.doesNotMatch(text, /\b(?:sessions?|turns?)\b/i, `${where}: ${text}`);
  };
  await check("at first");
  await say(page, "a long one, slowly");
  await page.waitForSelector("#tail .assistant");
  await say(page, "then this");
  await say(page, "then that");
  await page.waitForSelector("#tail .waiting");
  await check("while an answer is written");
  await page.keyboard.press("Escape");
  await page.waitForFunction(() => document.querySelector("#stop").hidden || document.querySelectorAll("#log .assistant").length > 1);
  await page.fill("#input", "/");
  await check("in the menu");
  await page.fill("#input", "/help");
  await page.press("#input", "Enter");
  await page.waitForSelector("dialog");
  await check("in the help");
  await page.keyboard.press("Escape");
  await page.click("#gauge-button");
  await page.waitForSelector("#breakdown:popover-open");
  await check("behind the gauge");
});
