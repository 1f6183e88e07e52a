/** User actions shared by the tests of branches and of the context. */

import { say, settled } from "./browser.mjs";

/** Asks the nth question differently. */
export async function edit(page, index, text) {
  const row = page.locator("#log .message.user").nth(index);
  await row.hover();
  await row.locator("[aria-label='Edit and ask again']").click();
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
  await row.hover();
  await row.locator("[aria-label=Pin]").click();
  await row.locator(`[aria-label=Pin][aria-pressed=${keeps}]`).waitFor();
}
