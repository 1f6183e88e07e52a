/** User actions shared by the tests of branches and of the context. */

import { say, settled } from "./browser.mjs";

/** Opens the menu of a message's actions. */
export async function openMenu(row) {
  await row.hover();
  await row.locator(".row-actions [aria-haspopup=menu]").click();
  await row.page().waitForSelector(".menu");
}

/** Chooses one of a message's actions. */
export async function act(row, name) {
  await openMenu(row);
  await row.page().locator(".menu button", { hasText: name }).first().click();
}

/** Returns the actions of a message that are possible, and closes their menu. */
export async function menuOf(row) {
  await openMenu(row);
  const names = await row.page().locator(".menu button").allInnerTexts();
  await row.page().keyboard.press("Escape");
  return names;
}

/** Asks the nth question differently. */
export async function edit(page, index, text) {
  const row = page.locator("#log .message.user").nth(index);
  await act(row, "Edit and ask again");
  await row.locator(".editor textarea").fill(text);
  await row.locator(".editor textarea").press("Enter");
}

/** Waits until the chat shows exactly these questions. */
export async function shows(page, expected) {
  await page.waitForFunction((texts) => {
    const found = [...document.querySelectorAll("#log .message.user .bubble")].map((node) => node.innerText);
    return JSON.stringify(found) === JSON.stringify(texts);
  }, expected);
}

/** Returns the rows of the panel: their texts, with `<` where the session continues. */
export function treeRows(page) {
  return page.locator("#tree-rows > li").evaluateAll((rows) => rows.map((row) => `${row.querySelector(".what").textContent}${row.ariaCurrent === "true" ? " <" : ""}`));
}

/** Sends these messages, each once the previous one is answered; `before` answers already exist. */
export async function talk(page, texts, before = 0) {
  for (const [index, text] of texts.entries()) {
    await say(page, text);
    await settled(page, before + index + 1);
  }
}

/** Opens "Compact…" from the breakdown. */
export async function compactDialog(page) {
  await page.click("#gauge-button");
  await page.click("#breakdown button:has-text('Compact…')");
  await page.waitForSelector("dialog.compact");
}

/** Requests a preview and waits until it is shown. */
export async function preview(page, instructions, shows = ".difference") {
  await compactDialog(page);
  await page.fill("#compact-about", instructions);
  await page.click("dialog button:has-text('Preview')");
  await page.waitForSelector(`dialog ${shows}`);
}

/** Pins or unpins the nth message of a kind, and waits until that shows. */
export async function pin(page, kind, index, keeps = true) {
  const row = page.locator(`#log ${kind}`).nth(index);
  await act(row, "Pin");
  await row.locator(".pin-chip").waitFor({ state: keeps ? "visible" : "hidden" });
}
