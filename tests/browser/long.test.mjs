/** Texts and chats that are far longer than usual. */

import assert from "node:assert/strict";
import { say, settled } from "./browser.mjs";
import { SCREENS, mockPages } from "./mock-page.mjs";
import { ELEMENTS_MAX } from "../../src/server/web/markdown.js";
import { ROWS_MAX } from "../../src/server/web/stretch.js";

const onPage = mockPages();

/** Elements of a row of these chats. */
const ROW_ELEMENTS = 25;

/** Maximum elements of the page, however long a chat is, and with the tree open. */
const PAGE_ELEMENTS_MAX = 3000;

/** Commands until a hit far up is shown: two look for it, ten load the path, and one its place in the tree. */
const HIT_COMMANDS_MAX = 13;

/** Milliseconds allowed to get from one end of a long chat to the other, however busy the machine is. */
const CHAT_MS = 60_000;

/** Creates a chat with this many turns, and opens it in the page. */
async function chat(page, server, turns, answer = (turn) => `Answer ${turn}: **so** it \`is\`.`) {
  const world = server.make();
  let last;
  for (let turn = 1; turn <= turns; turn += 1) {
    world.say(`question ${turn}`, `command-${turn}`);
    last = world.append({ type: "message", role: "assistant", content: [{ type: "text", text: answer(turn) }], stopReason: "stop" });
  }
  await page.evaluate((id) => (location.hash = `#session=${id}`), world.sessionId);
  await page.waitForSelector(`#log .assistant[data-entry="${last.entryId}"]`);
  return world;
}

const count = (page, selector = "*") => page.evaluate((all) => document.querySelectorAll(all).length, selector);

onPage("an open editor survives while the chat shows another part", {}, async ({ page, server }) => {
  const world = await chat(page, server, 100);
  const { entryId } = world.entries.findLast((entry) => entry.role === "user");
  await page.focus("#input");
  await page.keyboard.press("ArrowUp");
  const field = page.locator(`#log [data-entry="${entryId}"] .editor textarea`);
  await field.fill("asked differently");
  for (let up = 0; up < 30 && (await field.count()) > 0; up += 1) {
    await page.evaluate(() => {
      document.querySelector("#chat").scrollTop = 0;
    });
    await page.evaluate(() => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve))));
  }
  assert.equal(await field.count(), 0);
  await page.click("#jump");
  await field.waitFor();
  assert.equal(await field.inputValue(), "asked differently");
  await field.press("Escape");
  assert.equal(await page.innerText(`#log [data-entry="${entryId}"] .bubble`), "question 100");
});

onPage("500 turns: the number of elements is bounded, at the end, on the way up and at the beginning", {}, async ({ page, server }) => {
  const bare = await count(page);
  await chat(page, server, 500);
  const most = bare + ROWS_MAX * ROW_ELEMENTS;
  let seen = await count(page);
  for (const until = Date.now() + CHAT_MS; Date.now() < until;) {
    const text = await page.evaluate(() => {
      document.querySelector("#chat").scrollTop = 0;
      return document.querySelector("#log > li").innerText;
    });
    await page.evaluate(() => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve))));
    seen = Math.max(seen, await count(page));
    if (/question 1$/.test(text)) break;
  }
  assert.match(await page.innerText("#log > li"), /question 1$/);
  assert.ok(seen <= most, `${seen} elements, at most ${most}`);
  assert.ok((await count(page, "#log > li")) <= ROWS_MAX);
  // On the way down, every question appears once, in order.
  const questions = new Set();
  for (const until = Date.now() + CHAT_MS; Date.now() < until && !questions.has(500);) {
    const numbers = await page.evaluate(() => [...document.querySelectorAll("#log .user .bubble")].map((node) => Number(node.innerText.split(" ")[1])));
    numbers.forEach((number, index) => assert.ok(index === 0 || number === numbers[index - 1] + 1));
    for (const number of numbers) questions.add(number);
    await page.evaluate(() => (document.querySelector("#chat").scrollTop = 1e7));
    await page.evaluate(() => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve))));
  }
  assert.equal(questions.size, 500);
  assert.ok(await count(page) <= most);
  // A reader far up can jump to the end, and sees what is said there.
  for (let tries = 0; tries < 6; tries += 1) await page.evaluate(() => (document.querySelector("#chat").scrollTop = 0));
  await page.click("#jump");
  await page.waitForSelector("#log .user:has-text('question 500')");
  await say(page, "one more");
  await page.waitForSelector("#log > li:last-child.assistant:has-text('one more')");
  assert.ok(await count(page) <= most);
});

onPage("5,000 entries: a hit far up is shown after a few requests, and few elements are in the page", {}, async ({ page, server }) => {
  const world = await chat(page, server, 2500, (turn) => (turn === 20 ? "Here is the zebrafinch." : `Answer ${turn}.\n\n- **one**\n- two`));
  const target = world.entries[39].entryId;
  let commands = 0;
  let waited = null;
  const reply = server.on_get_entries;
  Object.assign(server, {
    on_get_entries(asked) {
      commands += 1;
      reply.call(this, asked);
    },
    on_get_tree(asked) {
      commands += 1;
      if (asked.payload.rootId === target) waited = commands;
      Object.getPrototypeOf(this).on_get_tree.call(this, asked);
    },
  });
  await page.keyboard.press("Control+k");
  await page.fill("dialog input", "zebrafinch");
  await page.waitForSelector("#search-hits [data-at='0']");
  commands = 0;
  await page.keyboard.press("Enter");
  await page.waitForSelector("#log .found:has-text('zebrafinch')");
  await page.waitForSelector("#tree-rows .found[aria-selected=true]");
  assert.ok(waited <= HIT_COMMANDS_MAX, `${waited} commands`);
  const inView = (selector) => page.evaluate((one) => {
    const { top, bottom } = document.querySelector(one).getBoundingClientRect();
    return top >= 0 && bottom <= innerHeight;
  }, selector);
  assert.deepEqual([await inView(`#log [data-entry="${target}"]`), await inView("#tree-rows .found")], [true, true]);
  assert.ok((await count(page)) <= PAGE_ELEMENTS_MAX, `${await count(page)} elements`);
  // The keys of the tree reach rows that are not drawn.
  await page.focus("#tree-rows .found");
  const rows = await page.getAttribute("#tree-rows .found", "aria-setsize");
  for (const [key, place] of [["End", rows], ["Home", "1"], ["ArrowDown", "2"]]) {
    await page.keyboard.press(key);
    assert.equal(await page.evaluate(() => document.activeElement.getAttribute("aria-posinset")), place, key);
  }
  await page.evaluate(() => (document.querySelector("#tree").scrollTop = 30_000));
  await page.waitForFunction(() => document.activeElement.id === "tree-rows");
  await page.keyboard.press("ArrowDown");
  assert.equal(await page.evaluate(() => document.activeElement.getAttribute("aria-posinset")), "3");
  assert.ok((await count(page)) <= PAGE_ELEMENTS_MAX, `${await count(page)} elements`);
});

onPage("the text being read stays in place while rows above and below it come and go", {}, async ({ page, server }) => {
  await chat(page, server, 200, (turn) => `Answer ${turn}. ${"It goes on. ".repeat(30)}`);
  await page.mouse.move(700, 400);
  for (let step = 0; step < 30; step += 1) {
    // Wait until there is something to scroll to.
    await page.waitForFunction(() => document.querySelector("#chat").scrollTop > 400);
    const before = await page.evaluate(() => {
      const { top } = document.querySelector("#chat").getBoundingClientRect();
      const row = [...document.querySelectorAll("#log > li")].find((node) => node.getBoundingClientRect().bottom > top + 40);
      return { entry: row.dataset.entry, y: row.getBoundingClientRect().top };
    });
    await page.evaluate(() => (document.querySelector("#chat").scrollTop -= 300));
    await page.evaluate(() => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve))));
    const after = await page.evaluate((entry) => document.querySelector(`[data-entry="${entry}"]`)?.getBoundingClientRect().top, before.entry);
    assert.ok(Math.abs(after - before.y - 300) <= 2, `step ${step}: the row moved by ${after - before.y}, not by 300`);
  }
});

/** Endless answers, of which only a part is generated. */
const HOSTILE = {
  "runs of marks": (part) => "*_".repeat(64_000 / part),
  "a list": (part) => "- a\n".repeat(60_000 / part),
  "a table": (part) => `a|b\n-|-\n${"|\n".repeat(100_000 / part)}`,
  lines: (part) => "a\n".repeat(100_000 / part),
  paragraphs: (part) => "*a*\n\n".repeat(50_000 / part),
  "one line": (part) => "x".repeat(350_000 / part),
  quotes: (part) => "> > > a\n\n".repeat(30_000 / part),
  links: (part) => "[a](https://b.example) ".repeat(15_000 / part),
};

/**
 * The number of parts of an answer, and how many times longer the whole may take to be shown than one part: four times
 * if the time grows linearly with the length, sixteen times if it grows quadratically. The fastest of several attempts
 * counts, since others use the machine too.
 */
const [PARTS, TIMES_MAX, ATTEMPTS] = [4, 10, 3];

/** Measures the milliseconds until a chat with this answer is shown, in a page of its own. */
async function showCost(context, url, server, text) {
  const page = await context.newPage();
  await page.goto(url);
  await page.waitForSelector("#input:not([disabled])");
  const began = performance.now();
  await chat(page, server, 1, () => text);
  const cost = performance.now() - began;
  await page.close();
  return cost;
}

for (const [name, make] of Object.entries(HOSTILE)) {
  onPage(`an endless answer of ${name} does not break the page`, {}, async ({ page, server, url }) => {
    const text = make(1);
    let [most, least] = [Infinity, Infinity];
    for (let attempt = 0; attempt < ATTEMPTS && !(most <= TIMES_MAX * least); attempt += 1) {
      least = Math.min(least, await showCost(page.context(), url, server, make(PARTS)));
      most = Math.min(most, await showCost(page.context(), url, server, text));
    }
    assert.ok(most <= TIMES_MAX * least, `${most} ms, a quarter of it ${least} ms`);
    await chat(page, server, 1, () => text);
    const made = await count(page, "#log .assistant .parts *");
    assert.ok(made <= ELEMENTS_MAX + 50, `${made} elements`);
    // Streamed, it ends the same, and the chat can continue.
    const wrong = await page.evaluate(async (whole) => {
      const { MarkdownView, markdown } = await import("/assets/markdown.js");
      const root = document.createElement("div");
      const view = new MarkdownView(root);
      for (let end = 4000; end < whole.length; end += Math.ceil(whole.length / 25)) view.update(whole.slice(0, end));
      view.update(whole);
      return root.textContent === markdown(whole).textContent ? null : [root.textContent.length, markdown(whole).textContent.length];
    }, text);
    assert.equal(wrong, null);
    await say(page, "and on");
    await settled(page, 2);
    await page.reload();
    await page.waitForSelector("#log .assistant:has-text('and on')");
  });
}

/**
 * Measures the milliseconds from a key press until the page has been drawn again: the fastest of several attempts,
 * since others use the machine too.
 */
function keyCost(page) {
  return page.evaluate(async () => {
    const input = document.querySelector("#input");
    input.focus();
    input.setSelectionRange(input.value.length, input.value.length);
    let least = Infinity;
    for (let turn = 0; turn < 5; turn += 1) {
      const began = performance.now();
      document.execCommand("insertText", false, "x");
      await new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
      least = Math.min(least, performance.now() - began);
    }
    return least;
  });
}

/** How many times more a key press may cost in a long line than in an empty one, which costs a frame. */
const KEY_TIMES_MAX = 30;

onPage("a line of 500 KB in the message field costs little per key press, and is sent whole", {}, async ({ page }) => {
  const usual = await keyCost(page);
  const line = "word ".repeat(100_000).trim();
  await page.fill("#input", line);
  const cost = await keyCost(page);
  assert.ok(cost < KEY_TIMES_MAX * usual, `${Math.round(cost)} ms a key, ${Math.round(usual)} ms in an empty line`);
  await page.press("#input", "Enter");
  await settled(page, 1);
  const later = await keyCost(page);
  assert.ok(later < KEY_TIMES_MAX * usual, `${Math.round(later)} ms a key beside the message, ${Math.round(usual)} ms before`);
  // Only the beginning of the message is shown; the rest is available on demand.
  const shown = async () => (await page.locator("#log .user .bubble").textContent()).length;
  assert.ok((await shown()) < 20_000);
  await page.click("#log .user button:has-text('Show all')");
  assert.ok((await shown()) >= line.length);
});

for (const [name, viewport] of Object.entries(SCREENS)) {
  onPage(`tables scroll and break no word: ${name}`, { viewport, touch: name === "phone" }, async ({ page, server }) => {
    const table = "| Name | Price | Description of what it is | Availability | Manufacturer | Recommendation |\n|---|---:|---|---|---|---|\n| Thunderbird | 1,299.00 | A very long description that goes on and on | immediately | Internationale Gesellschaft | unconditionally |";
    await chat(page, server, 1, () => `${table}\n\n- [x] done\n- [ ] to do &amp; more\n\nso \\(x_1 \\le y\\) and\n\n\\[\n\\frac{a}{b} \\\\\n\\]`);
    const found = await page.evaluate(() => {
      const broken = [];
      for (const cell of document.querySelectorAll("#log th, #log td")) {
        const range = document.createRange();
        const text = cell.firstChild;
        for (const word of text.data.matchAll(/\S+/g)) {
          range.setStart(text, word.index);
          range.setEnd(text, word.index + word[0].length);
          if (range.getClientRects().length > 1) broken.push(word[0]);
        }
      }
      const boxes = [...document.querySelectorAll("#log li.task input")].map((box) => [box.checked, box.disabled]);
      return { broken, boxes, wide: document.documentElement.scrollWidth > innerWidth, math: [...document.querySelectorAll("#log .math")].map((node) => node.textContent) };
    });
    assert.deepEqual(found, { broken: [], boxes: [[true, true], [false, true]], wide: false, math: ["\\(x_1 \\le y\\)", "\\[\n\\frac{a}{b} \\\\\n\\]"] });
    assert.match(await page.innerText("#log .assistant"), /to do & more/);
    if (name === "phone") assert.ok(await page.evaluate(() => document.querySelector("#log .table").scrollWidth > document.querySelector("#log .table").clientWidth));
  });
}
