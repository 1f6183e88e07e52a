/** The page on the real server, in a real Chromium: what a stranger does who runs one command and opens the page. */

import assert from "node:assert/strict";
import { get } from "node:http";
import { after, before, test } from "node:test";
import { conversation, launch, newPage, say, settled } from "./browser.mjs";
import { CSP } from "./mock.mjs";
import { Server } from "./server.mjs";

/** Console messages of the browser while the server is down; tests of that expect them. */
const AWAY = /WebSocket connection to|net::ERR_CONNECTION_REFUSED|status of 401/;

let browser;
before(async () => (browser = await launch()));
after(() => browser.close());

/** Maximum compressed bytes of a first load, with an empty browser cache. */
const FIRST_LOAD_BYTES_MAX = 112_000;
/** The same with a full cache. */
const RELOAD_BYTES_MAX = 1_000;

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

/** Waits until the running answer shows this many words. */
function words(page, count) {
  return page.waitForFunction((least) => (document.querySelector("#tail .parts")?.innerText ?? "").split(/\s+/).length > least, count);
}

onPage("a chat past the window shows nothing but a line that says so", {}, async ({ page }) => {
  await page.locator("#notice-line", { hasText: /offline/i }).waitFor();
  await say(page, "My favourite bird is the wryneck.");
  await settled(page, 1);
  let answers = 1;
  for (; answers < 12; answers += 1) {
    await say(page, `Write 1200 words, please, and call them chapter ${answers}.`);
    await settled(page, answers + 1);
  }
  const rows = page.locator("#log .compaction");
  assert.ok((await rows.count()) >= 2, `${await rows.count()} compactions`);
  assert.match(await rows.first().innerText(), /[\d,]+ → [\d,]+ tokens \(−\d+ %\)/);
  await rows.first().locator("summary").click();
  const summary = await rows.first().innerText();
  await rows.first().locator(".became h3").first().waitFor();
  assert.match(await rows.first().locator(".became").innerText(), /Kept word for word: \d+[\s\S]+Quoted word for word in the summary: \d+\s+You\s*My favourite bird/);
  for (const part of ["What the user said, word for word", "What was answered and done", "wryneck", "Why: the window was nearly full"]) assert.match(summary, new RegExp(part));
  await say(page, "What is my favourite bird?");
  await settled(page, answers + 1);
  assert.match((await conversation(page)).at(-1), /wryneck/);
  assert.equal(await page.locator("[data-ended], .toast.error").count(), 0);
  await rows.first().locator("summary").click();
  const shown = await conversation(page);
  await page.reload();
  await page.waitForFunction((count) => document.querySelectorAll("#log > li").length === count, shown.length);
  assert.deepEqual(await conversation(page), shown);
});

onPage("a reload in the middle of an answer finds the whole conversation", { settings: { OFFLINE_WORD_MILLIS: "15" } }, async ({ page }) => {
  await say(page, "Count to 20");
  await settled(page, 1);
  await say(page, "Write 800 words");
  await words(page, 20);
  await page.reload();
  await words(page, 60);
  await settled(page, 2);
  const shown = await conversation(page);
  assert.equal(shown.length, 4);
  assert.match(shown[1], /1, 2, 3,.*19, 20/s);
  assert.equal((await page.innerText("#log > li:last-child .parts")).trim().split(/\s+/).length, 800);
  await page.reload();
  await page.waitForFunction(() => document.querySelectorAll("#log > li").length === 4);
  assert.deepEqual(await conversation(page), shown);
});

onPage("/context adds up, /compact makes a row", {}, async ({ page }) => {
  for (let turn = 1; turn <= 3; turn += 1) {
    await say(page, `Write ${turn}00 words`);
    await settled(page, turn);
  }
  await say(page, "/context");
  await page.waitForSelector("#breakdown:popover-open");
  const number = (text) => Number(text.replace(/\D/g, ""));
  const counts = (await page.locator("#breakdown tbody tr td:nth-child(2)").allInnerTexts()).map(number);
  assert.equal(counts.reduce((sum, count) => sum + count, 0), number(await page.innerText("#breakdown tfoot td:nth-child(2)")));
  assert.ok(counts.length >= 2);
  await page.click("#breakdown button:has-text('next request')");
  await page.waitForSelector("#request details:has-text('Write 300 words')");
  const parts = (await page.locator("#request details .count, #request .frame .count").allInnerTexts()).map(number);
  assert.equal(parts.length, 8, "the system prompt, three questions, three answers, and what any request costs");
  assert.equal(parts.reduce((sum, count) => sum + count, 0), number((await page.innerText("#request .about")).split(" of ")[0].split("·")[1]));
  assert.equal(parts.reduce((sum, count) => sum + count, 0), number(await page.innerText("#gauge-button .tokens").then((text) => text.split("/")[0])));
  for (const [look, said] of [["Markdown", /^# system: base .*# user .*\n\nWrite 100 words/s], ["JSON", /^\{\n {2}"system": \{/]]) {
    await page.click(`#request button:has-text('${look}')`);
    await page.waitForFunction(([source, flags]) => new RegExp(source, flags).test(document.querySelector("#request pre")?.innerText ?? ""), [said.source, said.flags]);
  }
  await page.keyboard.press("Escape");
  // What the model saw for the second answer: as many tokens as were sent.
  await say(page, "/history");
  await page.waitForSelector(".chart");
  await page.focus(".timeline input");
  await page.keyboard.press("ArrowLeft");
  await page.click("button:has-text('What the model saw')");
  await page.waitForSelector("#request .about:has-text('It has as many tokens as the request that was sent.')");
  assert.match(await page.innerText("#request"), /Write 200 words/);
  assert.doesNotMatch(await page.innerText("#request"), /Write 300 words/);
  await page.keyboard.press("Escape");
  assert.equal(await page.locator("#sessions .session").count(), 1);
  const before = number(await page.innerText("#gauge-button .tokens"));
  for (let turn = 4; turn <= 7; turn += 1) {
    await say(page, "Write 500 words");
    await settled(page, turn);
  }
  await say(page, "/compact keep the numbers");
  await page.waitForSelector("#log .compaction");
  assert.match(await page.locator("#log .compaction").textContent(), /Why: asked for/);
  assert.ok(before > 0);
});

onPage("stopping keeps what was shown; “nothing to compact” is reported", { settings: { OFFLINE_WORD_MILLIS: "10" } }, async ({ page }) => {
  await say(page, "Write 3000 words");
  await words(page, 15);
  await page.click("#stop");
  await page.waitForSelector("[data-ended=cancelled]");
  assert.match((await conversation(page)).at(-1), /In the morning the river .*Stopped here/s);
  await say(page, "/compact");
  await page.waitForSelector(".toast.error:has-text('nothing_to_compact')");
  await say(page, "Count to 3");
  await page.waitForFunction(() => document.querySelector("#log > li:last-child")?.innerText.includes("1, 2, 3"));
  assert.equal(await page.locator("[data-ended]").count(), 0);
});

onPage("what the model says stays text", {}, async ({ page }) => {
  await say(page, "Repeat after me: <img src=x onerror=\"window.hacked=1\"><script>window.hacked=2</script> [x](javascript:window.hacked=3) **bold**");
  await settled(page, 1);
  const found = await page.evaluate(() => ({
    hacked: window.hacked ?? null,
    live: document.querySelectorAll("#log script, #log img, #log a, #log [onerror]").length,
    bold: document.querySelector("#log .assistant strong")?.textContent,
    text: document.querySelector("#log .assistant").innerText,
  }));
  assert.deepEqual([found.hacked, found.live, found.bold], [null, 0, "bold"]);
  assert.match(found.text, /<script>window\.hacked=2<\/script>/);
});

onPage("the server is killed and comes back: the page continues", { settings: { OFFLINE_WORD_MILLIS: "12" }, expected: AWAY }, async ({ page, server }) => {
  await say(page, "Count to 20");
  await settled(page, 1);
  await say(page, "Write 900 words");
  await words(page, 20);
  await server.end("SIGKILL");
  await page.waitForSelector("#connection-line:has-text('lost')");
  await server.start();
  await page.waitForFunction(() => document.querySelector("#connection-line").hidden);
  await page.waitForSelector("[data-ended=interrupted]");
  // The text being read stays, marked with what became of it.
  const isBroken = (row) => /broke off here. It is not stored/.test(row);
  assert.equal((await conversation(page)).filter(isBroken).length, 1);
  await page.click("[data-ended=interrupted] button");
  await settled(page, 3);
  const live = await conversation(page);
  assert.equal(live.filter((row) => /Write 900 words/.test(row)).length, 1);
  assert.equal((await page.innerText("#log > li:last-child .parts")).trim().split(/\s+/).length, 900);
  await page.reload();
  await page.waitForFunction((count) => document.querySelectorAll("#log > li").length === count, live.length - 1);
  assert.deepEqual(await conversation(page), live.filter((row) => !isBroken(row)));
});

onPage("a server that stops for a while says so, and nothing is duplicated", { expected: AWAY }, async ({ page, server }) => {
  await say(page, "Count to 3");
  await settled(page, 1);
  await server.end("SIGTERM");
  await page.waitForSelector("#connection-line:has-text('lost')");
  await say(page, "Count to 4");
  await server.start();
  await settled(page, 2);
  assert.deepEqual((await page.locator("#log .message.user > div").allInnerTexts()), ["Count to 3", "Count to 4"]);
});

onPage("sessions: created, named, listed, searched, switched and deleted", {}, async ({ page }) => {
  for (const text of ["Count to 3", "Count to 4"]) {
    await page.click("#new-session");
    await say(page, text);
    await settled(page, 1);
  }
  await page.waitForFunction(() => document.querySelectorAll("#sessions .session").length === 2);
  await page.fill("#search", "to 3");
  await page.waitForFunction(() => document.querySelectorAll("#sessions .session").length === 1);
  await page.click("#sessions .session a");
  await page.waitForFunction(() => document.querySelector("#log > li:last-child")?.innerText.includes("1, 2, 3"));
  await page.fill("#search", "");
  await page.waitForFunction(() => document.querySelectorAll("#sessions .session").length === 2);
  await page.hover("#sessions .current");
  await page.click("#sessions .current [aria-label^=Delete]");
  await page.click("dialog .danger");
  await page.waitForFunction(() => document.querySelectorAll("#sessions .session").length === 1);
  assert.equal(await page.innerText("#sessions .name"), "Count to 4");
});

onPage("tokens: the page asks, and gets a ticket for them", { settings: { AUTH_TOKENS: "ann:a-long-enough-secret-1" }, expected: AWAY }, async ({ page }) => {
  await page.fill("dialog input", "a-long-enough-secret-1");
  await page.press("dialog input", "Enter");
  await page.waitForFunction(() => document.querySelector("#connection-line").hidden);
  await say(page, "Count to 3");
  await settled(page, 1);
  await page.reload();
  await page.waitForFunction(() => document.querySelector("#log > li:last-child")?.innerText.includes("1, 2, 3"));
});

onPage("two windows: both write, see each other's messages, and say that the other is there", {}, async ({ page }) => {
  await say(page, "Count to 3");
  await settled(page, 1);
  const { page: other, faults } = await newPage(browser.context);
  await other.goto(page.url());
  await settled(other, 1);
  for (const window of [page, other]) await window.waitForSelector("#presence:has-text('2 windows')");
  await say(page, "Count to 4");
  await settled(other, 2);
  await say(other, "Count to 5");
  await settled(page, 3);
  // Both at once: the server puts them in one order.
  await Promise.all([say(page, "Count to 6"), say(other, "Count to 7")]);
  for (const window of [page, other]) await settled(window, 5);
  assert.deepEqual(await conversation(page), await conversation(other));
  assert.equal((await conversation(page)).length, 10);
  await other.reload();
  await page.waitForSelector("#presence:has-text('2 windows')");
  await other.close();
  await page.waitForSelector("#presence", { state: "hidden" });
  assert.deepEqual(faults, []);
});

/** Returns the result of a request: its status, some of its headers and the size of its body on the wire. */
function raw(address, headers = {}) {
  return new Promise((resolve, reject) => {
    get(address, { headers }, (response) => {
      let bytes = 0;
      response.on("data", (chunk) => (bytes += chunk.length));
      response.on("end", () => resolve({ status: response.statusCode, headers: response.headers, bytes }));
    }).on("error", reject);
  });
}

onPage("the page arrives in a few cached, compressed files, under the rules it was tested under", {}, async ({ page, url }) => {
  await page.waitForSelector("#connection-line", { state: "hidden" });
  // Everything sent over the wire for the page, headers included: an icon shown twice is fetched once.
  const wire = () => page.evaluate(() => {
    const all = [...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")];
    const fetched = all.filter((entry) => entry.transferSize > 0);
    return { requests: fetched.length, bytes: fetched.reduce((sum, entry) => sum + entry.transferSize, 0) };
  });
  const first = await wire();
  assert.ok(first.requests <= 5 && first.bytes < FIRST_LOAD_BYTES_MAX, `${first.requests} requests, ${first.bytes} bytes`);
  await say(page, "Count to 3");
  await settled(page, 1);
  const names = await page.evaluate(() => performance.getEntriesByType("resource").map((entry) => entry.name));
  const assets = [...new Set(names.filter((name) => name.includes("/assets/")))];
  assert.ok(assets.length <= 4, names.join(" "));
  let bytes = 0;
  for (const address of [url, ...assets]) {
    const packed = await raw(address, { "accept-encoding": "gzip, deflate, br" });
    assert.deepEqual([packed.status, packed.headers["content-encoding"], packed.headers["content-security-policy"].replace(/\s+/g, " ")], [200, "gzip", CSP], address);
    assert.match(packed.headers.vary, /accept-encoding/);
    assert.equal(packed.headers["cache-control"], address === url ? "no-cache" : "public, max-age=31536000, immutable");
    bytes += packed.bytes;
    const plain = await raw(address);
    assert.equal(plain.headers["content-encoding"], undefined);
    assert.ok(plain.bytes > packed.bytes || address.endsWith(".svg"));
    const again = await raw(address, { "if-none-match": packed.headers.etag });
    assert.deepEqual([again.status, again.bytes, again.headers.etag], [304, 0, packed.headers.etag]);
  }
  assert.ok(bytes < FIRST_LOAD_BYTES_MAX, `${bytes} bytes`);
  assert.equal((await raw(`${url}assets/main.js`)).status, 404);
  // A reload only checks whether the page is still the same.
  await page.reload();
  await page.waitForSelector("#log .assistant");
  const fetched = await page.evaluate(() => performance.getEntriesByType("resource").filter((entry) => entry.name.includes("/assets/") && entry.transferSize > 0).map((entry) => entry.name));
  assert.deepEqual(fetched, []);
  const again = await wire();
  assert.ok(again.requests === 1 && again.bytes < RELOAD_BYTES_MAX, `${again.requests} requests, ${again.bytes} bytes`);
});

onPage("a part of the page that could not be loaded is loaded when it is asked for again", { expected: /net::ERR_FAILED/ }, async ({ page }) => {
  await say(page, "Count to 3");
  await settled(page, 1);
  await page.route(/\/assets\/wire-view[^?]*$/, (route) => route.abort());
  await say(page, "/frames");
  await page.locator(".toast", { hasText: "could not be loaded" }).waitFor();
  await say(page, "/frames");
  await page.locator("ol.frames").waitFor();
});

onPage("on a phone", { viewport: { width: 360, height: 640 } }, async ({ page }) => {
  await say(page, "Write 300 words");
  await settled(page, 1);
  assert.equal(await page.evaluate(() => document.documentElement.scrollWidth > innerWidth), false);
  assert.equal(await page.locator("#send").isVisible() && await page.locator("#gauge").isVisible(), true);
  await page.click("#sidebar-open");
  await page.click("#new-session");
  await page.waitForSelector("#welcome:not([hidden])");
});
