/** The reader's position while answers stream in and panels open. */

import assert from "node:assert/strict";
import { say, settled } from "./browser.mjs";
import { SCREENS, mockPages } from "./mock-page.mjs";

const onPage = mockPages();

/** Returns the position of the view: pixels above it, pixels below it. */
function place(page) {
  return page.evaluate(() => {
    const { scrollTop, scrollHeight, clientHeight } = document.querySelector("#chat");
    return { above: Math.round(scrollTop), below: Math.round(scrollHeight - scrollTop - clientHeight) };
  });
}

/** Waits until the running answer has this many more words. */
async function moreWords(page, count) {
  const words = () => (document.querySelector("#tail .parts")?.innerText ?? "").split(/\s+/).length;
  const before = await page.evaluate(words);
  await page.waitForFunction(([least]) => (document.querySelector("#tail .parts")?.innerText ?? "").split(/\s+/).length >= least, [before + count]);
}

/** Creates a few answers, and one that continues for a while. */
async function streaming(page, server) {
  for (let turn = 1; turn <= 3; turn += 1) {
    await say(page, "a long one");
    await settled(page, turn);
  }
  server.wordMillis = 12;
  await say(page, "a long one, slowly");
  await page.waitForSelector("#tail .assistant");
  await moreWords(page, 30);
}

/** Ways to move up and down. */
const INPUTS = {
  wheel: {
    async up(page) {
      await page.mouse.move(700, 300);
      for (let turn = 0; turn < 9; turn += 1) await page.mouse.wheel(0, -100);
    },
    async down(page) {
      await page.mouse.wheel(0, 5000);
    },
  },
  touch: {
    async up(page) {
      await swipe(page, 390);
      await swipe(page, 390);
    },
    async down(page) {
      for (let turn = 0; turn < 60 && (await page.locator("#jump").isVisible()); turn += 1) await swipe(page, -350);
    },
  },
  keys: {
    async up(page) {
      await page.focus("#chat");
      await page.keyboard.press("PageUp");
      await page.keyboard.press("PageUp");
    },
    async down(page) {
      await page.keyboard.press("End");
    },
  },
  "keys from the message field": {
    async up(page) {
      await page.focus("#input");
      await page.keyboard.press("PageUp");
      await page.keyboard.press("PageUp");
    },
    async down(page) {
      for (let turn = 0; turn < 60 && (await page.locator("#jump").isVisible()); turn += 1) await page.keyboard.press("PageDown");
    },
  },
  scrollbar: {
    async up(page) {
      await page.evaluate(() => (document.querySelector("#chat").scrollTop -= 700));
    },
    async down(page) {
      await page.evaluate(() => (document.querySelector("#chat").scrollTop = 1e6));
    },
  },
};

/** Swipes a finger across the screen: downwards for a positive distance. */
async function swipe(page, distance) {
  const session = await page.context().newCDPSession(page);
  const from = 420 - distance / 2;
  const touch = (type, y) => session.send("Input.dispatchTouchEvent", { type, touchPoints: y === undefined ? [] : [{ x: 200, y }] });
  await touch("touchStart", from);
  for (let step = 1; step <= 10; step += 1) await touch("touchMove", from + (distance * step) / 10);
  await touch("touchEnd");
  await session.detach();
}

/** Waits until the view stands still. */
async function still(page) {
  await page.evaluate(() => (window.framesStill = 0));
  await page.waitForFunction(() => {
    const { scrollTop } = document.querySelector("#chat");
    const frames = window.lastTop === scrollTop ? window.framesStill + 1 : 0;
    Object.assign(window, { lastTop: scrollTop, framesStill: frames });
    return frames > 10;
  });
}

for (const [name, { up, down }] of Object.entries(INPUTS)) {
  const touch = name === "touch";
  onPage(`moving up by ${name} ends following, reaching the end resumes it`, { wordMillis: 0, touch, viewport: touch ? SCREENS.phone : undefined }, async ({ page, server }) => {
    await streaming(page, server);
    assert.ok((await place(page)).below <= 1, "it follows at first");
    await up(page);
    await page.waitForFunction(() => !document.querySelector("#jump").hidden);
    await still(page);
    const first = await place(page);
    assert.ok(first.below > 300, `${first.below} px below after moving up`);
    await moreWords(page, 60);
    const later = await place(page);
    assert.ok(Math.abs(later.above - first.above) <= 1, `the view moved from ${first.above} to ${later.above}`);
    assert.ok(later.below > first.below, "the answer grew below the view");
    await down(page);
    await page.waitForFunction(() => document.querySelector("#jump").hidden);
    await moreWords(page, 30);
    assert.ok((await place(page)).below <= 1, "it follows again");
    await page.keyboard.press("Escape");
  });
}

onPage("the beginning of the paragraph being written can be read", { wordMillis: 4, viewport: { width: 700, height: 420 } }, async ({ page }) => {
  await say(page, "a long one, slowly");
  await moreWords(page, 300);
  await page.mouse.move(300, 200);
  await page.mouse.wheel(0, -150);
  await still(page);
  const first = await place(page);
  await moreWords(page, 150);
  const later = await place(page);
  assert.ok(Math.abs(later.above - first.above) <= 1, `the view moved from ${first.above} to ${later.above}`);
  assert.ok(later.below > first.below + 20, "the paragraph grew below the view");
  await page.keyboard.press("Escape");
});

onPage("the button goes to the newest message, and sending does", { wordMillis: 0 }, async ({ page, server }) => {
  await streaming(page, server);
  await page.evaluate(() => (document.querySelector("#chat").scrollTop = 0));
  await page.click("#jump");
  await moreWords(page, 10);
  assert.ok((await place(page)).below <= 1);
  await page.evaluate(() => (document.querySelector("#chat").scrollTop = 0));
  await page.waitForSelector("#jump:not([hidden])");
  await say(page, "and this");
  await page.waitForSelector("#jump", { state: "hidden" });
  await page.keyboard.press("Escape");
});

onPage("a selection in the paragraph being written survives further text and the end of the answer", { wordMillis: 12 }, async ({ page, server }) => {
  await say(page, "a long one, held");
  await page.waitForFunction(() => /Sentence 6/.test(document.querySelector("#tail")?.innerText));
  await page.evaluate(() => {
    const text = document.querySelector("#tail .parts p").firstChild;
    const at = text.data.indexOf("Sentence 3");
    getSelection().setBaseAndExtent(text, at, text, at + "Sentence 3 of".length);
  });
  const selected = () => page.evaluate(() => getSelection().toString());
  await moreWords(page, 20);
  assert.equal(await selected(), "Sentence 3 of");
  // The content around the answer may change too.
  await say(page, "then this");
  await page.waitForSelector("#tail .waiting");
  await page.evaluate(() => document.querySelector("#input").blur());
  const seen = await selected();
  server.release(0);
  await page.waitForFunction(() => document.querySelectorAll("#log .assistant").length === 2);
  if (seen !== "") assert.equal(await selected(), seen);
  server.wordMillis = 12;
  server.released = false;
  await say(page, "a long one again, held");
  await page.waitForFunction(() => /Sentence 4/.test(document.querySelector("#tail .parts")?.innerText));
  await page.evaluate(() => getSelection().selectAllChildren(document.querySelector("#tail .parts p")));
  await page.evaluate(() => getSelection().setBaseAndExtent(document.querySelector("#tail .parts p").firstChild, 0, document.querySelector("#tail .parts p").firstChild, 10));
  server.release(0);
  await settled(page, 3);
  assert.equal(await selected(), "Sentence 1");
  assert.equal(await page.evaluate(() => getSelection().anchorNode.parentElement.closest("#log [data-entry]") !== null), true);
});

onPage("anything unfolded while an answer is written stays unfolded", { wordMillis: 12 }, async ({ page, server }) => {
  await say(page, "think, and give a long one, held");
  await page.waitForSelector("#tail details.reasoning");
  await page.click("#tail details.reasoning summary");
  server.release(0);
  await settled(page, 1);
  assert.equal(await page.locator("#log details.reasoning[open]").count(), 1);
  assert.equal(await page.innerText("#log details.reasoning summary"), "Reasoning");
});

/** Returns the sentence at the top of the view, with its position. */
function topOfView(page) {
  return page.evaluate(() => {
    const chat = document.querySelector("#chat").getBoundingClientRect();
    const walker = document.createTreeWalker(document.querySelector("#log"), NodeFilter.SHOW_TEXT);
    const range = document.createRange();
    let best = null;
    for (let node = walker.nextNode(); node; node = walker.nextNode()) {
      if (!node.parentElement.closest(".assistant p")) continue;
      for (const found of node.data.matchAll(/Sentence (\d+) /g)) {
        range.setStart(node, found.index);
        range.setEnd(node, found.index + 5);
        const { top } = range.getBoundingClientRect();
        const row = [...document.querySelectorAll("#log > li")].indexOf(node.parentElement.closest("#log > li"));
        if (top >= chat.top && (best === null || top < best.top)) best = { top, row, sentence: Number(found[1]) };
      }
    }
    return best;
  });
}

onPage("opening panels keeps the place", { wordMillis: 0 }, async ({ page }) => {
  await page.click("#notice-line button");
  for (let turn = 1; turn <= 6; turn += 1) {
    await say(page, "a long one");
    await settled(page, turn);
  }
  for (const above of [900, 1500, 2300]) {
    await page.evaluate((top) => (document.querySelector("#chat").scrollTop = top), above);
    await still(page);
    const before = await topOfView(page);
    for (const [open, close, panel] of [["#tree-open", "#tree-close", "#tree"], [null, "#request [aria-label='Close the request']", "#request"]]) {
      if (open) {
        await page.click(open);
      } else {
        await page.fill("#input", "/request");
        await page.press("#input", "Enter");
      }
      await page.waitForSelector(`${panel}:not([hidden])`);
      await still(page);
      const meanwhile = await topOfView(page);
      assert.equal(meanwhile.row, before.row, `${panel} opened at ${above}`);
      assert.ok(Math.abs(meanwhile.sentence - before.sentence) <= 6, `${panel}: sentence ${before.sentence}, then ${meanwhile.sentence}`);
      await page.click(close);
      await page.waitForSelector(panel, { state: "hidden" });
      await still(page);
      const after = await topOfView(page);
      assert.deepEqual([after.row, Math.abs(after.sentence - before.sentence) <= 6], [before.row, true], `${panel} closed: sentence ${before.sentence}, then ${after.sentence}`);
    }
  }
  // At the end, the view stays at the end.
  await page.click("#jump");
  await page.click("#tree-open");
  await page.waitForFunction(() => {
    const { scrollTop, scrollHeight, clientHeight } = document.querySelector("#chat");
    return scrollHeight - scrollTop - clientHeight <= 1;
  });
});
