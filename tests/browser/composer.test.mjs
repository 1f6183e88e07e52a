/** The message field and its command menu, also on small screens. */

import assert from "node:assert/strict";
import { say, settled } from "./browser.mjs";
import { SCREENS, mockPages } from "./mock-page.mjs";

const onPage = mockPages();

/** Returns the menu's state: whether it is open, what is active, and whether everything lies within the window. */
function menu(page) {
  return page.evaluate(() => {
    const list = document.querySelector("#hints");
    const input = document.querySelector("#input");
    const active = document.getElementById(input.getAttribute("aria-activedescendant") ?? "");
    const within = (node, box) => {
      const { top, bottom } = node.getBoundingClientRect();
      return top >= box.top - 1 && bottom <= box.bottom + 1;
    };
    const window = { top: 0, bottom: innerHeight };
    return {
      open: !list.hidden,
      active: active?.querySelector("code").textContent ?? null,
      seen: active === null || within(active, list.getBoundingClientRect()),
      fits: within(document.querySelector("#composer"), window) && (list.hidden || within(list, window)),
      expanded: input.getAttribute("aria-expanded"),
      role: input.getAttribute("role"),
    };
  });
}

for (const [name, viewport] of Object.entries(SCREENS)) {
  onPage(`the command menu leaves the message field in place: ${name}`, { viewport, touch: name === "phone" }, async ({ page }) => {
    await page.click("#notice-line button");
    await page.focus("#input");
    const place = await page.locator(".composer-box").boundingBox();
    await page.keyboard.type("/");
    assert.deepEqual(await menu(page), { open: true, active: "/context", seen: true, fits: true, expanded: "true", role: "combobox" });
    assert.deepEqual(await page.locator(".composer-box").boundingBox(), place);
    const count = await page.locator("#hints [role=option]").count();
    for (let down = 1; down < count; down += 1) {
      await page.keyboard.press("ArrowDown");
      const { seen, fits } = await menu(page);
      assert.deepEqual([seen, fits], [true, true], `option ${down}`);
    }
    assert.equal((await menu(page)).active, "/help");
  });
}

onPage("a refused input is put back, even if it was to start a chat", {}, async ({ page }) => {
  // The second time the chat already exists; a long text waits beside the field.
  const long = "too much ".repeat(3000).trim();
  for (const [text, field] of [["this is too much", "this is too much"], [long, ""]]) {
    await say(page, text);
    await page.waitForSelector(".toast.error:has-text('too long for the model')");
    await page.waitForFunction(() => !document.querySelector("#send").disabled);
    assert.equal(await page.inputValue("#input"), field);
    assert.equal(await page.locator("#long-texts li").count(), field ? 0 : 1);
    await page.click(".toast .icon-button");
    await page.fill("#input", "");
  }
  await page.click("#long-texts button");
  await say(page, "less");
  await settled(page, 1);
  await page.click("#new-session");
  await page.waitForSelector("#welcome:not([hidden])");
  assert.equal(await page.inputValue("#input"), "");
});

onPage("arrows, Tab, Enter and Escape in the menu", { wordMillis: 15 }, async ({ page }) => {
  await page.focus("#input");
  await page.keyboard.type("/re");
  const names = await page.locator("#hints code").allInnerTexts();
  assert.deepEqual(names, ["/request", "/retry", "/rename NAME"]);
  for (const [key, active] of [["ArrowDown", "/retry"], ["ArrowDown", "/rename NAME"], ["ArrowDown", "/request"], ["ArrowUp", "/rename NAME"]]) {
    await page.keyboard.press(key);
    assert.equal((await menu(page)).active, active);
    assert.deepEqual(await page.locator("#hints [aria-selected=true] code").allInnerTexts(), [active]);
  }
  await page.keyboard.press("Tab");
  assert.equal(await page.inputValue("#input"), "/rename ");
  assert.deepEqual(await menu(page), { open: false, active: null, seen: true, fits: true, expanded: null, role: null });
  assert.equal(await page.evaluate(() => document.activeElement.id), "input");
  // Enter completes a partly typed command, and sends a complete one.
  await page.fill("#input", "/hel");
  await page.keyboard.press("Enter");
  assert.equal(await page.inputValue("#input"), "/help ");
  assert.equal(await page.locator("dialog").count(), 0);
  await page.keyboard.press("Enter");
  await page.waitForSelector("dialog:has-text('Commands and keys')");
  await page.keyboard.press("Escape");
  // Escape closes the menu; only a second one stops the answer.
  await say(page, "a long one, slowly");
  await page.waitForFunction(() => /Sentence 2/.test(document.querySelector("#tail")?.innerText));
  await page.focus("#input");
  await page.keyboard.type("/");
  await page.keyboard.press("Escape");
  assert.equal((await menu(page)).open, false);
  assert.equal(await page.inputValue("#input"), "/");
  assert.equal(await page.locator("#stop").isVisible(), true);
  await page.keyboard.press("Escape");
  await page.waitForSelector("[data-ended=cancelled]");
  // One more letter opens it again; a click chooses an option and leaves the focus in the field.
  await page.keyboard.type("co");
  assert.equal((await menu(page)).active, "/context");
  await page.click("#hints [role=option]:has-text('/compact')");
  assert.equal(await page.inputValue("#input"), "/compact ");
  assert.equal(await page.evaluate(() => document.activeElement.id), "input");
});
