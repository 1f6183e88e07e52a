/** Model, instructions and strategy, chosen before the first message too; and what axe reports about the page. */

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { say, settled } from "./browser.mjs";
import { SCREENS, mockPages } from "./mock-page.mjs";

const onPage = mockPages();
const AXE = await readFile(new URL(import.meta.resolve("axe-core")), "utf8");

/** Returns the violations that axe finds in what is shown, each rule with its places. */
async function faultsOf(page) {
  await page.evaluate(AXE);
  const violations = await page.evaluate(async () => (await globalThis.axe.run()).violations);
  return violations.map(({ id, nodes }) => [id, ...nodes.map(({ target }) => target.join(" "))]);
}

onPage("the start screen names the model, and another is chosen before the first message", {}, async ({ page, server }) => {
  await page.click("#welcome-model");
  await page.waitForSelector(".chat-settings");
  assert.equal(await page.innerText("#welcome-model"), "Model: mock-1");
  await page.selectOption("#chat-model", "other");
  assert.equal(await page.innerText(".chat-settings .hint"), "32,000 tokens · $0.4 in, $1.6 out for a million tokens · no tools · no pictures");
  await page.fill("#chat-instructions", "Be brief.");
  await page.fill("#chat-temperature", "0.3");
  await page.fill("#chat-limit", "200");
  assert.deepEqual(await faultsOf(page), []);
  await page.click(".chat-settings [type=submit]");
  await page.waitForSelector(".chat-settings", { state: "detached" });
  await page.waitForFunction(() => document.querySelector("#welcome-model")?.textContent === "Model: other");
  const [world] = server.worlds.values();
  assert.deepEqual([world.model, world.settings], ["other", { instructions: "Be brief.", temperature: 0.3, maxOutputTokens: 200 }]);
  await say(page, "hello");
  await settled(page, 1);
  assert.equal(server.worlds.size, 1);
  await page.click("#settings-open");
  await page.waitForSelector(".chat-settings");
  assert.deepEqual(await page.locator(".chat-settings .field").evaluateAll((fields) => fields.map((field) => field.value)), ["other", "Be brief.", "0.3", "200"]);
});

onPage("the instructions can return to the server's own, and an empty text means none", {}, async ({ page, server }) => {
  await say(page, "hello");
  await settled(page, 1);
  const [world] = server.worlds.values();
  const own = page.locator(".chat-settings .label-row button");
  const open = async (value, placeholder, isOwn) => {
    await page.click("#settings-open");
    await page.waitForSelector(".chat-settings");
    const field = page.locator("#chat-instructions");
    assert.deepEqual([await field.inputValue(), await field.getAttribute("placeholder"), await own.isHidden()], [value, placeholder, isOwn]);
  };
  const use = async (expected) => {
    await page.click(".chat-settings [type=submit]");
    await page.waitForSelector(".chat-settings", { state: "detached" });
    assert.deepEqual(world.settings, expected);
  };
  await open("", "Those of the server", true);
  await page.fill("#chat-instructions", "Be brief.");
  assert.ok(await own.isVisible());
  await use({ instructions: "Be brief." });
  await open("Be brief.", "None", false);
  await own.click();
  assert.deepEqual(await faultsOf(page), []);
  await use({});
  world.update({ settings: { instructions: "" } });
  await open("", "None", false);
  await use({ instructions: "" });
  await open("", "None", false);
  await own.click();
  await use({});
  await open("", "Those of the server", true);
});

onPage("commands set the model and the strategy of a chat that is still empty", {}, async ({ page, server }) => {
  await say(page, "/strategy manual");
  await page.waitForFunction(() => location.hash !== "");
  await say(page, "/model other");
  await page.waitForFunction(() => document.querySelector("#welcome-model")?.textContent === "Model: other");
  const [world] = server.worlds.values();
  assert.deepEqual([server.worlds.size, world.strategy, world.model], [1, "manual", "other"]);
  await say(page, "/model");
  await page.waitForSelector(".chat-settings");
});

onPage("a message has one Tab stop, its menu; the keyboard edits the last message and lists the keys; days have a line", {}, async ({ page, server }) => {
  for (const [index, text] of ["one", "two"].entries()) {
    await say(page, text);
    await settled(page, index + 1);
  }
  const stops = await page.locator("#log .message").evaluateAll((rows) => rows.map((row) => [...row.querySelectorAll("a, button, summary, [tabindex]")].filter((node) => node.tabIndex >= 0 && node.checkVisibility()).length));
  assert.deepEqual(stops, [1, 1, 1, 1]);
  const focused = () => page.evaluate(() => document.activeElement.textContent);
  const button = page.locator("#log .message.user").first().locator("[aria-haspopup=menu]");
  await button.focus();
  for (const [key, item] of [["Enter", "Edit and ask again"], ["ArrowUp", "Fork into a new chat"], ["ArrowDown", "Edit and ask again"], ["p", "Pin"], ["Home", "Edit and ask again"]]) {
    await page.keyboard.press(key);
    assert.equal(await focused(), item, key);
  }
  assert.deepEqual(await faultsOf(page), []);
  await page.keyboard.press("Escape");
  assert.deepEqual([await page.locator(".menu").count(), await button.evaluate((node) => [node === document.activeElement, node.ariaExpanded])], [0, [true, "false"]]);
  await button.click();
  await page.mouse.click(700, 20);
  assert.equal(await page.locator(".menu").count(), 0);
  assert.match(await page.locator("#log .user .when").first().innerText(), /^$/);
  await page.locator("#log .user").first().hover();
  assert.match(await page.locator("#log .user .when").first().innerText(), /\d\d/);
  await page.focus("#input");
  await page.keyboard.press("ArrowUp");
  assert.equal(await page.locator("#log .user").nth(1).locator("textarea").inputValue(), "two");
  await page.keyboard.press("Escape");
  assert.equal(await page.evaluate(() => document.activeElement.ariaHasPopup), "menu");
  await page.keyboard.press("?");
  await page.waitForSelector("dialog:has-text('edit your last message')");
  await page.keyboard.press("Escape");
  // An entry of the next day.
  const [world] = server.worlds.values();
  const later = world.append;
  world.append = function (data, ...rest) {
    return later.call(this, { ...data, timestamp: "2026-11-23T12:00:00.000Z" }, ...rest);
  };
  await say(page, "three");
  await settled(page, 3);
  assert.deepEqual(await page.locator("#log > .day").allInnerTexts(), ["Monday, November 23, 2026"]);
  assert.equal(await page.locator("#log > li").nth(4).getAttribute("class"), "day");
});

onPage("the context over the chat: a plot with compactions, chosen by keys and by dragging, and what the model saw; the frames for developers", { windowTokens: 2500, viewport: SCREENS.phone }, async ({ page, server }) => {
  for (const [index, text] of ["big one", "two", "big three", "four"].entries()) {
    await say(page, text);
    await settled(page, index + 1);
  }
  // The developers' drawer: the frames of this chat, filtered, as code.
  await page.context().grantPermissions(["clipboard-read", "clipboard-write"]);
  await say(page, "/frames");
  await page.waitForSelector(".frames li:has-text('get_context_info'), .frames li:has-text('user_input')");
  const types = () => page.locator(".frames code").allInnerTexts();
  assert.deepEqual((await types()).filter((type) => ["item_delta", "hello", "list_sessions", "sessions"].includes(type)), []);
  await page.fill(".wire input[type=search]", "big three");
  await page.waitForFunction(() => document.querySelector(".frames code")?.textContent === "user_input");
  assert.deepEqual((await types()).slice(0, 2), ["user_input", "entry_appended"]);
  const [world] = server.worlds.values();
  await page.locator(".frames summary").first().click();
  for (const [label, expected] of [
    ["Copy as TypeScript", `const reply = await client.request("user_input", {\n  "input": "big three"\n}, { session: "${world.sessionId}" });`],
    ["Copy as wscat", `"sessionId":"${world.sessionId}","type":"user_input","payload":{"input":"big three"}}\n`],
  ]) {
    await page.click(`.frames button:has-text('${label}')`);
    await page.waitForSelector(".frames button:has-text('Copied')");
    const copied = await page.evaluate(() => navigator.clipboard.readText());
    assert.ok(copied.includes(expected), copied);
  }
  assert.deepEqual(await faultsOf(page), []);
  assert.equal(await page.evaluate(() => document.documentElement.scrollWidth > innerWidth), false);
  await page.fill(".wire input[type=search]", "");
  await page.check(".wire .check:has-text('Deltas') input");
  await page.waitForSelector(".frames code:has-text('item_delta')");
  assert.ok((await types()).length <= 100);
  await page.click("[aria-label='Close the frames']");
  assert.equal(await page.locator(".wire").isVisible(), false);
  await say(page, "/history");
  await page.waitForSelector(".chart");
  const chosen = () => page.innerText(".timeline dd").then((text) => text.split(",")[0]);
  assert.deepEqual([await chosen(), await page.locator(".chart .mark").count(), await page.locator(".chart .area").count()], ["4 of 4", 1, 3]);
  assert.deepEqual(await faultsOf(page), []);
  assert.equal(await page.evaluate(() => document.documentElement.scrollWidth > innerWidth), false);
  await page.focus(".timeline input");
  await page.keyboard.press("Home");
  assert.equal(await chosen(), "1 of 4");
  const { x, y, width } = await page.locator(".chart").boundingBox();
  await page.mouse.move(x + width * 0.1, y + 20);
  await page.mouse.down();
  await page.mouse.move(x + width * 0.4, y + 20);
  await page.mouse.up();
  assert.equal(await chosen(), "2 of 4");
  await page.click("button:has-text('What the model saw')");
  await page.waitForSelector("#request details:has-text('two')");
  assert.equal(await page.innerText("#request-title"), "What the model saw");
  assert.doesNotMatch(await page.innerText("#request"), /big three/);
  await page.click("#request button:has-text('Markdown')");
  await page.waitForSelector("#request pre:has-text('# user')");
  assert.equal(server.worlds.size, 1, "the copy is gone");
  assert.deepEqual(await faultsOf(page), []);
  await page.keyboard.press("Escape");
});

onPage("axe finds no violations with failed answers and an approval card", {}, async ({ page }) => {
  await say(page, "please fail");
  await page.waitForSelector("[data-ended=failed]");
  assert.deepEqual(await faultsOf(page), []);
  await page.click("#chat-menu");
  await page.click(".menu button:has-text('Export…')");
  await page.waitForSelector("dialog");
  assert.deepEqual(await faultsOf(page), []);
  await page.keyboard.press("Escape");
  await say(page, "please approve");
  await page.waitForSelector("[data-approval]");
  assert.deepEqual(await faultsOf(page), []);
});

for (const [name, viewport] of Object.entries({ laptop: { width: 1280, height: 800 }, ...SCREENS })) {
  onPage(`the actions for a full window are in view: ${name}`, { viewport }, async ({ page }) => {
    await say(page, "hello");
    await settled(page, 1);
    await page.click("#gauge-button");
    await page.click(".section.strategy > summary");
    const { top, bottom } = await page.locator("#breakdown > .actions button", { hasText: "Compact now" }).evaluate((button) => button.getBoundingClientRect().toJSON());
    assert.ok(top >= 0 && bottom <= viewport.height, `${top} to ${bottom} of ${viewport.height}`);
  });
}
