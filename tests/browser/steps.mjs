/** What a user does in the tests of branches and of the context. */

import { say, settled } from "./browser.mjs";

/** Asks the nth question differently. */
export async function edit(page, index, text) {
  const row = page.locator("#log .message.user").nth(index);
  await row.hover();
  await row.locator("[aria-label='Edit and ask again']").click();
  await row.locator(".editor textarea").fill(text);
  await row.locator(".editor textarea").press("Enter");
}

/** Waits until these are the questions of the chat. */
export async function shows(page, expected) {
  await page.waitForFunction((texts) => {
    const found = [...document.querySelectorAll("#log .message.user .bubble")].map((node) => node.innerText);
    return JSON.stringify(found) === JSON.stringify(texts);
  }, expected);
}

/** The rows of the panel: what they say, with `<` where the session goes on. */
export function treeRows(page) {
  return page.locator("#tree-rows > li").evaluateAll((rows) => rows.map((row) => `${row.querySelector(".what").textContent}${row.ariaCurrent === "true" ? " <" : ""}`));
}

/** Says these, each when the one before is answered; so many answers are there before. */
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

/** Asks for a preview and waits until it is shown. */
export async function preview(page, instructions, shows = ".difference") {
  await compactDialog(page);
  await page.fill("#compact-about", instructions);
  await page.click("dialog button:has-text('Preview')");
  await page.waitForSelector(`dialog ${shows}`);
}

/** Pins the nth message of a kind, or lets it go, and waits until that is seen. */
export async function pin(page, kind, index, keeps = true) {
  const row = page.locator(`#log ${kind}`).nth(index);
  await row.hover();
  await row.locator("[aria-label=Pin]").click();
  await row.locator(`[aria-label=Pin][aria-pressed=${keeps}]`).waitFor();
}
