/** The operator's page on the real server, in a real Chromium, beside a chat on the chat page. */

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { launch, newPage, say, settled } from "./browser.mjs";
import { CSP } from "./mock.mjs";
import { Server } from "./server.mjs";

/** Maximum compressed bytes of a first load, with an empty browser cache. */
const FIRST_LOAD_BYTES_MAX = 20_000;

const OPERATOR = "an-operators-secret-1";
const READER = "a-readers-secret-001";
const USER = "a-users-secret-00001";
const TOKENS = { OPERATOR_TOKENS: `op:${OPERATOR}`, AUTH_TOKENS: `ann:${USER}` };

/** Console messages of the browser when a request is refused; tests of that expect them. */
const REFUSED = /status of (401|403|404|409)/;

let browser;
before(async () => (browser = await launch()));
after(() => browser.close());

/** Runs a test on a fresh server, with the operator's page, and checks for faults that must never occur. */
function onPage(name, { settings, ...options }, body) {
  test(name, async () => {
    const server = new Server(settings);
    try {
      const url = await server.start();
      const { page, faults } = await newPage(browser.context, options);
      await page.goto(`${url}operator`);
      await body({ page, url, server });
      assert.deepEqual(faults, []);
      await page.close();
    } finally {
      await server.remove();
    }
  });
}

/** Opens the chat page, and says these texts. */
async function chat(url, texts, token) {
  const { page } = await newPage(browser.context, { expected: REFUSED });
  await page.goto(url);
  if (token) {
    await page.fill("dialog input", token);
    await page.press("dialog input", "Enter");
  }
  await page.waitForFunction(() => document.querySelector("#connection-line").hidden);
  for (const [at, text] of texts.entries()) {
    await say(page, text);
    await settled(page, at + 1);
  }
  return page;
}

/** Returns the answer of an endpoint. */
const ask = async (url, path, token) => (await fetch(`${url}${path}`, { headers: token ? { authorization: `Bearer ${token}` } : {} })).json();

const number = (text) => Number(text.replace(/[^\d.]/g, ""));

onPage("it opens directly, and shows a chat while it goes on: its context, requests and tree", {}, async ({ page, url }) => {
  await page.waitForSelector(":text('There are no sessions yet.')");
  const other = await chat(url, ["Count to 3", "Write 300 words", "Write 500 words"]);
  await page.waitForSelector(".rows .row:has-text('offline')");
  const [session] = (await ask(url, "api/sessions")).items;
  assert.match(await page.innerText(".rows .row"), new RegExp(`${Math.round(session.usageRatio * 100)} %[\\s\\S]*idle[\\s\\S]*offline[\\s\\S]*${session.strategy}`));
  await page.click(".rows a");
  await page.waitForSelector("[aria-label='Context window'] tfoot");
  const counts = (await page.locator("[aria-label='Context window'] tbody td:nth-child(2)").allInnerTexts()).map(number);
  assert.equal(counts.reduce((sum, count) => sum + count, 0), number(await page.innerText("[aria-label='Context window'] tfoot td:nth-child(2)")));
  assert.equal(await page.getAttribute("[aria-label='Requests'] [type=range]", "max"), "2");
  assert.match(await page.innerText("[aria-label='Tree']"), /6 entries, 1 branch, 6 deep[\s\S]*message assistant\s*3/);
  // A fourth answer appears by itself.
  await say(other, "Count to 4");
  await settled(other, 4);
  await page.waitForFunction(() => document.querySelector("[aria-label='Requests'] [type=range]").max === "3");
  await other.close();
});

onPage("compactions are listed with their steps, and the sums are those of the account", { settings: { MODEL_PRICES: "offline=2/0.5/8" } }, async ({ page, url }) => {
  const texts = Array.from({ length: 9 }, (_, at) => `Write ${1_000 + at} words`);
  const other = await chat(url, texts);
  await other.close();
  const [session] = (await ask(url, "api/sessions")).items;
  await page.goto(`${url}operator#session=${session.sessionId}`);
  await page.waitForSelector("[aria-label=Compactions] .steps > li");
  assert.match(await page.innerText("[aria-label=Compactions] .steps > li:last-child"), /[\d,]+ → [\d,]+ tokens \(−\d+ %\)[\s\S]*Why: the window was nearly full[\s\S]*Used: /);
  await page.evaluate(() => (location.hash = "#users"));
  await page.waitForSelector("[aria-label='Cost by user, 30 days'] tbody tr");
  const { items: [sum] } = await ask(url, "api/usage?by=user");
  assert.ok(sum.requests >= 9 && sum.costNanoUsd > 0);
  const cells = await page.locator("[aria-label='Cost by user, 30 days'] tbody td").allInnerTexts();
  assert.deepEqual([number(cells[0]), number(cells[1])], [Number((sum.costNanoUsd / 1e9).toFixed(4)), sum.requests]);
  const titles = await page.locator("[aria-label='Cost by user, 30 days'] tbody td[title]").evaluateAll((all) => all.map(({ title }) => title));
  assert.deepEqual(titles.map(number), [sum.inputTokens, sum.outputTokens]);
});

onPage("plots add up to the account, and show what the server counted in each minute", { settings: { MODEL_PRICES: "offline=2/0.5/8" } }, async ({ page, url, server }) => {
  const other = await chat(url, ["Count to 3", "Write 900 words", "Write 800 words", "Write 700 words", "Count to 4"]);
  await say(other, "/compact");
  await other.waitForSelector("#log .compaction");
  await other.close();
  // The last part of a minute is written when the server stops.
  await server.end();
  await server.start();
  await page.goto(`${url}operator#usage`);
  await page.waitForSelector(".plot svg");
  const { items: [sum] } = await ask(url, "api/usage?by=total");
  const cost = sum.costNanoUsd + sum.estimatedCostNanoUsd;
  assert.ok(sum.requests >= 5 && cost > 0);
  const tiles = async () => Object.fromEntries(await page.locator(".tile").evaluateAll((all) => all.map((tile) => [tile.querySelector("dt").textContent, tile.querySelector("dd").textContent])));
  for (const range of ["hour", "day", "week"]) {
    await page.click(`[data-range=${range}]`);
    await page.waitForSelector(`[data-range=${range}][aria-pressed=true]`);
    const { Cost, Requests, "Tokens in": sent, "Tokens out": answered } = await tiles();
    assert.deepEqual([number(Cost), number(Requests), number(sent), number(answered)], [Number((cost / 1e9).toFixed(4)), sum.requests, sum.inputTokens, sum.outputTokens], range);
  }
  for (const [plot, name] of [["Cost by model", "offline"], ["Cost by user", "(nobody)"]]) {
    const legend = page.locator(`.plot:has(h2:text-is("${plot}")) .legend`);
    await legend.waitFor();
    assert.match(await legend.innerText(), new RegExp(`^${name.replace(/[()]/g, "\\$&")}\\s*\\$`));
    assert.equal(number((await legend.innerText()).replace(name, "")), Number((cost / 1e9).toFixed(4)));
  }
  assert.equal(await page.innerText(".plot:has(h2:text-is('Compactions')) .legend"), "committed\n1");
  // Whether somebody waited a millisecond for the compaction is chance.
  const empty = await page.locator(".plot:has(.said:visible) h2").allInnerTexts();
  assert.deepEqual(empty.filter((title) => title !== "Waiting for compactions"), ["Waiting for permits", "Failures"]);
});

onPage("only an operator gets in, names and texts need content access, and the token stays in memory", { settings: TOKENS, expected: REFUSED }, async ({ page, url }) => {
  const other = await chat(url, ["My cat is called Miso."], USER);
  await other.close();
  await page.fill("#token", USER);
  await page.keyboard.press("Enter");
  await page.waitForSelector("#refused");
  await page.fill("#token", OPERATOR);
  await page.keyboard.press("Enter");
  await page.waitForSelector(".rows .row:has-text('ann')");
  assert.doesNotMatch(await page.innerText("main"), /Miso/);
  await page.click(".rows a");
  await page.waitForSelector("button:has-text('Show the next request'):disabled");
  assert.match(await page.innerText("[aria-label='Context window']"), /needs the right operator\.content/);
  assert.doesNotMatch(await page.innerText("main"), /Miso/);
  const kept = await page.evaluate(() => JSON.stringify([{ ...localStorage }, { ...sessionStorage }, document.cookie, location.href, document.documentElement.outerHTML]));
  assert.ok(!kept.includes(OPERATOR));
  await page.reload();
  await page.waitForSelector("#token");
});

/** Opens a lever, and pulls it; returns what it answered. */
async function pull(page, label, typed) {
  await page.click(`.levers button:text-is("${label}")`);
  if (typed !== undefined) await page.fill("dialog input", typed);
  await page.click("dialog [type=submit]");
  await page.waitForSelector("dialog .done, dialog .wrong");
  const said = await page.innerText("dialog .result");
  await page.keyboard.press("Escape");
  await page.waitForSelector("dialog", { state: "detached" });
  return said;
}

onPage("levers: compact, undo, preview, cancel, close and delete a session that a chat page shows", { expected: REFUSED }, async ({ page, url }) => {
  const other = await chat(url, ["Write 700 words", "Write 800 words", "Write 900 words", "Count to 3"]);
  await page.waitForSelector(".rows .row");
  await page.click(".rows a");
  await page.waitForSelector("[aria-label='Context window'] tfoot");
  const { sessionId } = (await ask(url, "api/sessions")).items[0];
  const tokens = async () => (await ask(url, `api/sessions/${sessionId}/context`)).tokenCount;
  const before = await tokens();
  assert.match(await pull(page, "Preview…"), /Done\.[\s\S]*tokens after\s*[\d,]+/);
  assert.equal(await tokens(), before);
  assert.match(await pull(page, "Compact…", "the numbers"), /Done\.[\s\S]*job id/);
  await page.waitForSelector("[aria-label=Compactions] .steps > li:has-text('Why: asked for')");
  await other.waitForSelector("#log .compaction");
  assert.ok((await tokens()) < before);
  assert.match(await pull(page, "Undo…"), /^Done\./);
  assert.equal(await tokens(), before);
  assert.match(await pull(page, "Undo…"), /nothing_to_undo|nothing|no compaction/i);
  assert.match(await pull(page, "Close…"), /Done\.[\s\S]*sockets\s*1/);
  // The client opens it again by itself.
  await say(other, "Count to 4");
  await settled(other, 5);
  assert.match(await pull(page, "Delete…", sessionId.slice(0, 4)), /^Done\./);
  await page.waitForSelector(":text('There are no sessions yet.')");
  assert.deepEqual((await ask(url, "api/sessions")).items, []);
  assert.equal((await ask(url, "api/usage?by=total")).items[0].requests >= 5, true);
  await other.close();
});

onPage("a user: closed, and deleted with a proof; an operator who only reads pulls no lever", { settings: { ...TOKENS, OPERATOR_TOKENS: `op/write:${OPERATOR},reader:${READER}` }, expected: REFUSED }, async ({ page, url }) => {
  const other = await chat(url, ["My cat is called Miso."], USER);
  await page.fill("#token", READER);
  await page.keyboard.press("Enter");
  await page.waitForSelector(".rows .row:has-text('ann')");
  await page.goto(`${url}operator#user=ann`);
  await page.reload();
  await page.fill("#token", READER);
  await page.keyboard.press("Enter");
  await page.waitForSelector(".levers button:has-text('Delete all…'):disabled");
  assert.match(await page.innerText(".view-head"), /operator\.write/);
  await page.reload();
  await page.fill("#token", OPERATOR);
  await page.keyboard.press("Enter");
  await page.waitForSelector(".tile:has-text('Connections') dd:text-is('1')");
  assert.match(await pull(page, "Close…"), /Done\.[\s\S]*sockets\s*1/);
  await other.close();
  assert.match(await pull(page, "Delete all…", "ann"), /search, found\s*0\s[\s\S]*\ssessions\s*1\s[\s\S]*usage rows\s*1/);
  assert.deepEqual((await ask(url, "api/sessions", OPERATOR)).items, []);
});

onPage("a backup is made with progress, and the server drains", { settings: { BACKUP_DIR: "." }, expected: /status of (401|403|404|503)|ERR_CONNECTION_REFUSED/ }, async ({ page, server }) => {
  await page.waitForSelector(":text('There are no sessions yet.')");
  await page.evaluate(() => (location.hash = "#servers"));
  await page.waitForSelector(":text('This server accepts sessions.')");
  assert.match(await pull(page, "Back up now…"), /^Done\./);
  await page.waitForSelector("[aria-label=Backup] :text('Done: ')");
  assert.match(await pull(page, "Drain this server…"), /Done\.[\s\S]*draining/);
  await page.waitForSelector("#live:has-text('does not answer')");
  await server.end();
});

onPage("the page arrives in a few small, cached files, under the rules it was tested under", { expected: REFUSED }, async ({ page, url }) => {
  await page.waitForSelector(":text('There are no sessions yet.')");
  const wire = () => page.evaluate(() => {
    const all = [...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource").filter(({ name }) => name.includes("/operator"))];
    const fetched = all.filter((entry) => entry.transferSize > 0);
    return { requests: fetched.length, bytes: fetched.reduce((sum, entry) => sum + entry.transferSize, 0), names: all.map(({ name }) => name) };
  });
  const first = await wire();
  assert.ok(first.requests <= 5 && first.bytes < FIRST_LOAD_BYTES_MAX, `${first.requests} requests, ${first.bytes} bytes`);
  for (const hash of ["usage", "users", "servers", "session=none"]) {
    await page.evaluate((to) => (location.hash = to), hash);
    await page.waitForSelector(`.view[aria-label=${hash[0].toUpperCase()}${hash.split("=")[0].slice(1)}]`);
  }
  const { names } = await wire();
  const scripts = names.filter((name) => name.endsWith(".js"));
  assert.equal(new Set(scripts).size, 6, scripts.join(" "));
  for (const name of new Set(names)) {
    const { status, headers } = await fetch(name);
    assert.deepEqual([status, headers.get("content-security-policy").replace(/\s+/g, " ")], [200, CSP], name);
    assert.equal(headers.get("cache-control"), name.includes("/assets/") ? "public, max-age=31536000, immutable" : "no-cache");
  }
  assert.equal((await fetch(`${url}operator/assets/main.js`)).status, 404);
  await page.waitForSelector("[aria-label=Tree]:has-text('no session')");
});
