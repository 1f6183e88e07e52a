/** Search on the real server: branches, other chats, a chat deleted by another window, a phone. */

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { launch, newPage, say, settled } from "./browser.mjs";
import { Server } from "./server.mjs";
import { edit, shows, talk } from "./steps.mjs";

let browser;
before(async () => (browser = await launch()));
after(() => browser.close());

const says = (page, text) => page.locator("dialog.search .said", { hasText: text }).waitFor();

/** Returns the marked words in the excerpts, each once, in alphabetical order. */
const marks = async (page) => [...new Set(await page.locator("dialog.search mark").allInnerTexts())].sort();

test("search follows the server's rules, on any branch and in any chat, and shows the hit in the tree", async () => {
  const server = new Server();
  try {
    const url = await server.start();
    const { page, faults } = await newPage(browser.context);
    await page.goto(url);
    await talk(page, ["Our cat is called Miso.", "She sleeps in the café by the lighthouse."]);
    await edit(page, 1, "She sleeps on the windowsill.");
    await shows(page, ["Our cat is called Miso.", "She sleeps on the windowsill."]);
    await settled(page, 2);
    const first = page.url();
    await page.click("#new-session");
    await talk(page, ["Which lighthouses are on the island?"]);
    await page.keyboard.press("Control+k");
    await page.fill("dialog.search input", "CAFE lighth*");
    await says(page, "Nothing was found in this chat.");
    await page.click("dialog.search .segments button:has-text('All chats')");
    await says(page, "in your chats.");
    assert.deepEqual(await marks(page), ["café", "lighthouse"]);
    const hit = page.locator("dialog.search [role=option]", { has: page.locator("b", { hasText: "You" }) });
    assert.match(await hit.innerText(), /^You\s+Our cat is called Miso\.\s+just now\s+She sleeps in the café by the lighthouse\.$/);
    await hit.click();
    await page.waitForSelector("#tree-rows .found:has-text('She sleeps in the café')");
    assert.equal(page.url(), first);
    assert.match(await page.innerText("#tree-hint"), /on another branch/);
    await shows(page, ["Our cat is called Miso.", "She sleeps on the windowsill."]);
    await page.keyboard.press("Enter");
    await page.click("dialog button:has-text('Go there')");
    await shows(page, ["Our cat is called Miso.", "She sleeps in the café by the lighthouse."]);

    // Another window deletes the other chat while its hit is shown.
    await page.keyboard.press("Control+k");
    await page.fill("dialog.search input", "\"lighthouses are\"");
    await page.waitForSelector("dialog.search [role=option]");
    const other = await newPage(browser.context);
    await other.page.goto(url);
    await other.page.locator("#sessions li", { hasText: "Which lighthouses" }).hover();
    await other.page.click("[aria-label^='Delete Which lighthouses']");
    await other.page.click("dialog button:has-text('Delete')");
    await page.locator("#sessions li", { hasText: "Which lighthouses" }).waitFor({ state: "detached" });
    await page.keyboard.press("Enter");
    await says(page, "This chat was deleted meanwhile.");
    assert.equal(page.url(), first);
    await page.fill("dialog.search input", "lighthouses");
    await says(page, "Nothing was found in your chats.");
    assert.deepEqual([faults, other.faults], [[], []]);
  } finally {
    await server.remove();
  }
});

test("on a phone the search fills the screen, and a tap on a hit shows it in the tree", async () => {
  const server = new Server();
  try {
    const url = await server.start();
    const { page, faults } = await newPage(await browser.touch());
    await page.goto(url);
    await say(page, "The red bag has the map of the island.");
    await settled(page, 1);
    await page.tap("#search-open");
    await page.fill("dialog.search input", "island map");
    await page.waitForSelector("dialog.search mark");
    assert.deepEqual(await page.locator("dialog.search").boundingBox(), { x: 0, y: 0, width: 390, height: 844 });
    await page.locator("dialog.search [role=option]", { hasText: "You" }).last().tap();
    const row = page.locator("#tree-rows .found");
    await row.waitFor();
    const { y, height } = await row.boundingBox();
    assert.ok(height >= 42 && y >= 0 && y + height <= 844);
    assert.deepEqual(faults, []);
  } finally {
    await server.remove();
  }
});
