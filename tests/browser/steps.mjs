/** What a user does in the tests of branches. */

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

/** Says these in a new chat, each when the one before is answered. */
export async function talk(page, texts) {
  for (const [index, text] of texts.entries()) {
    await say(page, text);
    await settled(page, index + 1);
  }
}
