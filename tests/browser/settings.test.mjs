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
  assert.equal(await page.innerText("#welcome-model"), "Model: mock-1");
  await page.selectOption("#chat-model", "other");
  assert.equal(await page.innerText(".chat-settings .hint"), "32,000 tokens · $0.4 in, $1.6 out for a million tokens · no tools");
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
  assert.deepEqual(await page.locator(".chat-settings .field").evaluateAll((fields) => fields.map((field) => field.value)), ["other", "Be brief.", "0.3", "200"]);
});

onPage("the instructions can return to the server's own, and an empty text means none", {}, async ({ page, server }) => {
  await say(page, "hello");
  await settled(page, 1);
  const [world] = server.worlds.values();
  const own = page.locator(".chat-settings .label-row button");
  const open = async (value, placeholder, isOwn) => {
    await page.click("#settings-open");
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

onPage("axe finds no violations with failed answers and an approval card", {}, async ({ page }) => {
  await say(page, "please fail");
  await page.waitForSelector("[data-ended=failed]");
  assert.deepEqual(await faultsOf(page), []);
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
