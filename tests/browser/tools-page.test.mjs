/** Tools of a real server that asks before it runs one: the page, a reload, and another window. */

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { launch, newPage, say, settled } from "./browser.mjs";
import { Server } from "./server.mjs";

let browser;
before(async () => (browser = await launch()));
after(() => browser.close());

/** The outcome of the newest call. */
const outcome = (page) => page.locator("#log details.call:visible .state").last().innerText();

test("a tool of the server asks, is allowed and rejected, for once and for good", async () => {
  const server = new Server({}, "tools");
  try {
    const url = await server.start();
    const { page, faults } = await newPage(browser.context);
    await page.goto(url);
    await say(page, "Use the tool note with text=milk");
    const card = page.locator(".approval");
    await card.waitFor();
    assert.match(await card.innerText(), /Allow the tool note\?.*"text": "milk"/s);
    await page.reload();
    await card.waitFor();
    await card.locator("button", { hasText: "Allow always" }).click();
    await settled(page, 2);
    assert.match(await outcome(page), /^done · /);
    await say(page, "Use the tool note with text=milk");
    await settled(page, 4);
    assert.match(await outcome(page), /^done · /, "the lasting answer holds");
    await say(page, "Use the tool note with text=bread");
    await card.waitFor();
    const other = await newPage(browser.context);
    await other.page.goto(page.url());
    await other.page.locator(".approval button", { hasText: /^Reject$/ }).click();
    await page.locator(".toast", { hasText: "The tool note was rejected in another window." }).waitFor();
    await settled(page, 6);
    assert.equal(await outcome(page), "not run");
    await say(page, "Use the tool notes with x=y");
    await settled(page, 8);
    assert.match(await outcome(page), /^done · /, "a tool that only reads is not asked about");
    await say(page, "/tools");
    const dialog = page.locator("dialog.tools");
    await dialog.locator("p.said", { hasText: "2 tools, all switched on" }).waitFor();
    assert.match(await dialog.locator(".standing").innerText(), /Always allowed: note/);
    await dialog.getByRole("switch", { name: "notes" }).uncheck();
    await dialog.locator("p.said", { hasText: "2 tools, 1 switched on" }).waitFor();
    await dialog.locator("button", { hasText: "Ask again" }).click();
    await dialog.locator(".standing").waitFor({ state: "detached" });
    await page.keyboard.press("Escape");
    await say(page, "Use the tool note with text=milk");
    await card.waitFor();
    await page.click("#stop");
    await card.waitFor({ state: "detached" });
    assert.deepEqual([faults, other.faults], [[], []]);
  } finally {
    await server.remove();
  }
});
