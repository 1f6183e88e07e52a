/** Search: the marked words, and the page on the mock server. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { found, termsOf } from "../../src/server/web/found-words.js";
import { SessionTree } from "../../src/server/web/tree.js";
import { say, settled } from "./browser.mjs";
import { SCREENS, mockPages } from "./mock-page.mjs";
import { edit, shows, talk } from "./steps.mjs";

const onPage = mockPages();

/** Returns an excerpt with the marked words in brackets. */
const marked = (query, excerpt) => found(excerpt, termsOf(query)).map(({ text, isFound }) => (isFound ? `[${text}]` : text)).join("");

test("searched words are marked by the rules of the server's search", () => {
  const text = "Ports: port 80, the exact words; in src/core/mod.rs. 東京都は晴れ。";
  const cases = [
    ["port", "Ports: [port] 80, the exact words; in src/core/mod.rs. 東京都は晴れ。"],
    ["PORT*", "[Ports]: [port] 80, the exact words; in src/core/mod.rs. 東京都は晴れ。"],
    ["\"exact words\"", "Ports: port 80, the [exact words]; in src/core/mod.rs. 東京都は晴れ。"],
    ["\"words exact\"", text], ["por", text], ["mod.r", text],
    ["core/mod*", "Ports: port 80, the exact words; in src/[core/mod].rs. 東京都は晴れ。"],
    ["京都 晴れ", "Ports: port 80, the exact words; in src/core/mod.rs. 東[京都]は[晴れ]。"],
    ["\"the wor\"*", text], ["“the exact wor”*", "Ports: port 80, [the exact words]; in src/core/mod.rs. 東京都は晴れ。"],
    ["exact words", "Ports: port 80, the [exact] [words]; in src/core/mod.rs. 東京都は晴れ。"],
  ];
  for (const [query, want] of cases) assert.equal(marked(query, text), want, query);
  assert.equal(marked("cafe οδος", "Café ΟΔΟΣ cafes"), "[Café] [ΟΔΟΣ] cafes");
  assert.equal(marked("img", "<img src=x>"), "<[img] src=x>");
  assert.deepEqual(["", "…", "* \"\" - ()"].map((query) => termsOf(query).length), [0, 0, 0]);
  assert.equal(termsOf(Array.from({ length: 40 }, (_, n) => `w${n}`).join(" ")).length, 16);
});

test("a search continues at the top of the known part above an entry", () => {
  const tree = new SessionTree();
  const entry = (entryId, parentId) => ({ entryId, parentId, timestamp: "2026-11-21T09:00:00.000Z", type: "message", role: "user", content: [] });
  tree.addPath([entry("a", null), entry("b", "a"), entry("x", "w"), entry("y", "x")]);
  assert.equal(tree.topOf("y", new Set())?.entryId, "x");
  assert.equal(tree.topOf("y", new Set(["x"])), null);
  assert.equal(tree.topOf("b", new Set()), null);
  assert.equal(tree.topOf("unknown", new Set()), null);
});

/** Console messages of the browser while a server is down; tests of that expect them. */
const AWAY = /WebSocket connection to|net::ERR_CONNECTION_REFUSED/;

/** Opens the search by keyboard and types this. */
async function search(page, text) {
  await page.keyboard.press("Control+k");
  await page.waitForSelector("dialog.search");
  await page.fill("dialog.search input", text);
}

/** Waits until the search shows this message. */
const says = (page, text) => page.locator("dialog.search .said", { hasText: text }).waitFor();

/** Returns the hits: who, where if shown, and the excerpt with its marks; without the time. */
function hits(page) {
  return page.locator("dialog.search [role=option]").evaluateAll((items) => items.map((item) => {
    const about = [...item.querySelectorAll(".about > :not(time)")].map((node) => node.textContent);
    const text = [...item.querySelector("p").childNodes].map((node) => (node.nodeName === "MARK" ? `[${node.textContent}]` : node.textContent));
    return [...about, text.join("")].join(" | ");
  }));
}

/** Returns the tree row that a search has led to. */
function foundRow(page) {
  return page.evaluate(() => {
    const row = document.querySelector("#tree-rows .found");
    const { top, bottom } = row.getBoundingClientRect();
    return {
      says: row.querySelector(".what").textContent, focused: document.activeElement === row, seen: top >= 0 && bottom <= innerHeight,
      selected: row.ariaSelected, hint: document.querySelector("#tree-hint").textContent,
    };
  });
}

onPage("a word is found in this chat, and shown in the tree and the chat", {}, async ({ page }) => {
  await talk(page, ["The harbour opens at noon.", "And the bakery?", "Which harbour did I mean?"]);
  await search(page, "HARBOUR");
  await says(page, "4 places in this chat.");
  assert.deepEqual((await hits(page)).slice(1), [
    "You | Which [harbour] did I mean?",
    "Answer | You said: “The [harbour] opens at noon.”. That was message 1.",
    "You | The [harbour] opens at noon.",
  ]);
  await page.keyboard.press("ArrowUp");
  for (let down = 0; down < 7; down += 1) await page.keyboard.press("ArrowDown");
  await page.locator("dialog.search input[aria-activedescendant=search-hit-3]").waitFor();
  assert.equal(await page.locator("dialog.search [aria-selected=true]").count(), 1);
  await page.keyboard.press("Enter");
  await page.waitForSelector("dialog.search", { state: "detached" });
  assert.deepEqual(await foundRow(page), { says: "The harbour opens at noon.", focused: true, seen: true, selected: "true", hint: "Choose a message to go there." });
  await page.waitForSelector("#log .message.user.found:has-text('The harbour opens')");
  // The search continues from where it was.
  await page.keyboard.press("Control+k");
  await says(page, "4 places in this chat.");
  await page.keyboard.press("Escape");
  await page.waitForSelector("dialog.search", { state: "detached" });
  await page.click("#tree-close");
  await page.click("#tree-open");
  assert.equal(await page.locator("#tree-rows .found").count(), 0, "closing the tree ends the mark");
});

onPage("an immediate Enter chooses by the current text, not from earlier hits", {}, async ({ page }) => {
  await talk(page, ["The harbour opens at noon.", "And the bakery?"]);
  await search(page, "noon");
  await says(page, "2 places in this chat.");
  await page.locator("dialog.search input").fill("bakery");
  await page.keyboard.press("Enter");
  await page.waitForSelector("dialog.search", { state: "detached" });
  assert.match((await foundRow(page)).says, /bakery/);
});

onPage("a hit on another branch says so, and the branch can be opened from there", {}, async ({ page }) => {
  await talk(page, ["one", "the lighthouse"]);
  await edit(page, 1, "the windmill");
  await shows(page, ["one", "the windmill"]);
  await settled(page, 2);
  await search(page, "\"the lighthouse\"");
  await says(page, "2 places in this chat.");
  assert.deepEqual(await hits(page), [
    "Answer | on another branch | You said: “[the lighthouse]”. That was message 2.",
    "You | on another branch | [the lighthouse]",
  ]);
  await page.locator("dialog.search [role=option]").nth(1).click();
  await page.waitForSelector("#tree-rows .found");
  const { says: text, hint } = await foundRow(page);
  assert.deepEqual([text, hint], ["the lighthouse", "What you searched for is on another branch. Choose it to go there."]);
  await shows(page, ["one", "the windmill"]);
  await page.keyboard.press("Enter");
  await page.click("dialog button:has-text('Go there')");
  await shows(page, ["one", "the lighthouse"]);
});

onPage("a hit in the middle of a long chat, on another branch and above what is loaded, gets its place", {}, async ({ page, server }) => {
  const world = server.make();
  const talked = (count, of) => {
    for (let index = 0; index < count; index += 1) world.append({ type: "message", role: index % 2 ? "assistant" : "user", content: [{ type: "text", text: `${of} ${index}` }] });
  };
  talked(700, "early");
  const fork = world.leafId;
  talked(120, "aside");
  world.move(fork);
  talked(700, "late");
  world.update({ name: "A long one" });
  await page.goto(new URL(`#session=${world.sessionId}`, page.url()).href);
  await page.waitForSelector("#log .message:has-text('late 699')");
  for (const [text, hint] of [["aside 60", /another branch/], ["early 8", /Choose a message to go there/]]) {
    await search(page, text);
    await page.locator("dialog.search [role=option]", { hasText: new RegExp(`${text}$`) }).first().click();
    await page.waitForSelector(`#tree-rows .found:has-text('${text}')`);
    const row = await foundRow(page);
    assert.deepEqual([row.says, row.focused, row.seen], [text, true, true]);
    assert.match(row.hint, hint);
    if (text !== "aside 60") continue;
    // Only rows near the visible ones are drawn.
    await page.evaluate(() => (document.querySelector("#tree").scrollTop += 2000));
    await page.waitForSelector("#tree-rows > li:has-text('aside 119')");
  }
  // Everything is connected: there is one beginning.
  assert.equal(await page.locator("#tree-rows [aria-level='1']").first().locator(".what").textContent(), "early 0");
});

onPage("all chats are searched, and another chat is opened at the hit; a deleted one is reported, and this one stays", {}, async ({ page, server }) => {
  await talk(page, ["The ferry leaves at five."]);
  const first = page.url();
  await page.click("#new-session");
  await talk(page, ["The ferry is booked out."]);
  const second = page.url();
  await search(page, "ferry");
  await says(page, "2 places in this chat.");
  await page.click("dialog.search .segments button:has-text('All chats')");
  await says(page, "4 places in your chats.");
  assert.deepEqual((await hits(page)).filter((hit) => hit.startsWith("You")), [
    "You | The ferry is booked out. | The [ferry] is booked out.", "You | The ferry leaves at five. | The [ferry] leaves at five.",
  ]);
  await page.locator("dialog.search [role=option]", { hasText: "You" }).last().click();
  await page.waitForSelector("#tree-rows .found:has-text('The ferry leaves at five.')");
  assert.equal(page.url(), first);
  await page.keyboard.press("Control+k");
  await says(page, "4 places in your chats.");
  server.worlds.delete(new URL(second).hash.replace("#session=", ""));
  await page.locator("dialog.search [role=option]").first().click();
  await says(page, "This chat was deleted meanwhile.");
  assert.equal(page.url(), first);
  await page.keyboard.press("Escape");
});

onPage("messages of the search: nothing found, no word, an error, a late response, more than fits", { expected: AWAY }, async ({ page, server }) => {
  await page.waitForSelector("#search-open");
  await page.click("#search-open");
  await says(page, "Quotes");
  assert.deepEqual(await page.locator("dialog.search .segments button").evaluateAll((all) => all.map((one) => [one.textContent, one.disabled, one.ariaPressed])), [["This chat", true, "false"], ["All chats", false, "true"]]);
  await page.keyboard.press("Escape");
  await talk(page, ["<img src=x onerror=\"window.hacked=1\"> is shown"]);
  await search(page, "nowhere");
  await says(page, "Nothing was found in this chat.");
  assert.deepEqual(await hits(page), []);
  await page.fill("dialog.search input", "…!");
  await says(page, "Type a word: letters or digits.");
  await page.fill("dialog.search input", "refused");
  await page.waitForSelector("dialog.search .said.wrong:has-text('store failed')");
  await page.fill("dialog.search input", "held");
  await says(page, "Searching…");
  await page.fill("dialog.search input", "onerror");
  await says(page, "2 places");
  server.release();
  assert.match((await hits(page))[1], /^You \| <img src=x \[onerror\]="window.hacked=1"> is shown$/);
  assert.equal(await page.evaluate(() => window.hacked), undefined);
  const world = [...server.worlds.values()][0];
  for (let index = 0; index < 60; index += 1) world.append({ type: "message", role: "user", content: [{ type: "text", text: `many ${index}` }] });
  await page.fill("dialog.search input", "many");
  await says(page, "50 places, and there may be more. Add a word to find fewer.");
  server.goAway();
  await page.fill("dialog.search input", "many 7");
  await says(page, "There is no connection. The search goes on when it is back.");
  server.comeBack();
  await says(page, "1 place in this chat.");
});

onPage("the chat name filter leads to the full search, and so does a command", {}, async ({ page }) => {
  await talk(page, ["The puffin is at the north shore."]);
  assert.equal(await page.locator("#search-said").isVisible(), false);
  await page.fill("#search", "north");
  await page.click("#search-said");
  await says(page, "2 places in your chats.");
  assert.equal(await page.inputValue("dialog.search input"), "north");
  await page.keyboard.press("Escape");
  await say(page, "/search puffin shore");
  await says(page, "2 places in your chats.");
  await page.click("dialog.search [aria-label='Close the search']");
  await page.waitForSelector("dialog.search", { state: "detached" });
});

onPage("a server that cannot search has no button for it", { features: ["tree"] }, async ({ page }) => {
  await talk(page, ["one"]);
  assert.equal(await page.locator("#search-open").isVisible(), false);
  await page.keyboard.press("Control+k");
  assert.equal(await page.locator("dialog.search").count(), 0);
  await say(page, "/search one");
  await page.waitForSelector(".toast:has-text('This server cannot search.')");
});

for (const [name, viewport] of Object.entries(SCREENS)) {
  onPage(`the search fits the window: ${name}`, { viewport, touch: name === "phone" }, async ({ page }) => {
    const words = "A rather wordy message about the harbour and its cranes. ".repeat(6);
    await talk(page, [words, words, words]);
    await page.click("#search-open");
    await page.fill("dialog.search input", "cranes harbour");
    await page.waitForSelector("dialog.search [role=option] >> nth=5");
    const look = () => page.evaluate(() => {
      const { left, right, top, bottom } = document.querySelector("dialog.search").getBoundingClientRect();
      const hit = document.querySelector("dialog.search [role=option]").getBoundingClientRect();
      const wide = [...document.querySelectorAll("dialog.search, .hits, header.bar")].filter((node) => node.scrollWidth > node.clientWidth + 1).length;
      return { fits: left >= 0 && right <= innerWidth && top >= 0 && bottom <= innerHeight, hitIsSeen: hit.top >= top && hit.top < bottom - 40, wide };
    });
    assert.deepEqual(await look(), { fits: true, hitIsSeen: true, wide: 0 });
    await page.locator("dialog.search [role=option]").last().scrollIntoViewIfNeeded();
    await page.locator("dialog.search [role=option]").last()[name === "phone" ? "tap" : "click"]();
    await page.waitForSelector("#tree-rows .found");
    const row = await foundRow(page);
    assert.deepEqual([row.focused, row.seen], [true, true]);
    if (name === "phone") assert.equal(await page.evaluate(() => document.documentElement.scrollWidth), viewport.width);
  });
}
