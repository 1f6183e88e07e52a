/** The page alone, in a real Chromium, against a mock server that does what the questions ask for. */

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { conversation, newPage, say, settled } from "./browser.mjs";
import { mockPages } from "./mock-page.mjs";
import { CSP } from "./mock.mjs";

/** Console messages of the browser while a server is down; tests of that expect them. */
const AWAY = /WebSocket connection to|net::ERR_CONNECTION_REFUSED|status of 401/;

const onPage = mockPages();

onPage("an answer streams in, and a reload shows the same", {}, async ({ page, server }) => {
  const served = await page.request.get(`http://127.0.0.1:${server.port}/`);
  assert.equal(served.headers()["content-security-policy"], CSP);
  await say(page, "show markdown and think");
  await settled(page, 1);
  await say(page, "use a tool, then cut");
  await settled(page, 3);
  const shown = await conversation(page);
  assert.equal(shown.length, 6);
  assert.match(shown[5], /reached the output limit/);
  assert.deepEqual(await page.locator("#log h3, #log th, #log ol > li").evaluateAll((all) => all.map((node) => node.firstChild.textContent)), ["A plan", "Read the ", "Write fold.js", "Look at it", "kind", "tokens"]);
  assert.equal(await page.locator("#log a").getAttribute("rel"), "noopener noreferrer");
  // The code has colours, and is still one text.
  await page.waitForFunction(() => CSS.highlights.get("code-keyword")?.size === 2);
  const words = await page.evaluate(() => [...CSS.highlights.get("code-keyword")].map(({ startContainer, startOffset, endOffset }) => startContainer.data.slice(startOffset, endOffset)));
  assert.deepEqual([words, await page.locator("#log .code code *").count()], [["function", "return"], 0]);
  await page.reload();
  await page.waitForFunction(() => document.querySelectorAll("#log > li").length === 6);
  assert.deepEqual(await conversation(page), shown);
  assert.match(await page.title(), /show markdown and think/);
});

onPage("a streaming view ends like the whole text, at every cut", {}, async ({ page }) => {
  const wrong = await page.evaluate(async () => {
    const { MarkdownView, markdown } = await import("/assets/markdown.js");
    const texts = [
      "# T\n\npara *a* **b\nc** `d`\n\n- x\n  - y\n\n    z\n- w\n\n> q\n> r\n\n```js\nlet a = `b`;\n\n\n~~~\n```\n\n| a | b |\n|---|:-:|\n| 1 | 2 |\n\nend",
      "a\n- b\n-c\n1. d\n```\nopen\n  code\n", "   ```\n   in\n  out\n   ```\n", "x\r\ny\r\n\r\nz", "```\n\n\nafter", "<b>x</b>\n\n<script>1</script>\n\n![p](https://a.example/p.png)",
      "- [ ] a\n- [x] b\n\n$$\nx_1 \\\\\n$$\n\nso \\(a\\) &amp; $b^2$ &lt;\n\n|a|b|\n|-|-|\n|1|\n\n\\begin{x}\ny\n\\end{x}\nend",
    ];
    const wrong = [];
    for (const text of texts) {
      for (let step = 1; step <= 7; step += 1) {
        const root = document.createElement("div");
        const view = new MarkdownView(root);
        for (let end = step; end < text.length; end += step) view.update(text.slice(0, end));
        view.update(text);
        if (root.innerHTML !== markdown(text).innerHTML) wrong.push([step, root.innerHTML, markdown(text).innerHTML]);
      }
    }
    return wrong;
  });
  assert.deepEqual(wrong, []);
});

onPage("tokens of common languages", {}, async ({ page }) => {
  const found = await page.evaluate(async () => {
    const { tokensOf } = await import("/assets/highlight.js");
    const table = [
      ["js", "const a = `x`; // 1"], ["TypeScript", "let n: number = 0x1f"], ["python", "def f(): # no\n  return '''a\nb'''"], ["rust", "fn f<'a>(x: &'a str) -> char { 'x' }"],
      ["json", "{\"a\": [1, \"b\", true]}"], ["bash", "if [ $#  = 1 ]; then echo \"a\"; fi # end"], ["sql", "SELECT 'it''s' FROM t -- x"], ["html", "<a href=\"x\">if 1</a>"], ["yaml", "on: true # y"],
      ["css", "a { color: \"x\" }"], ["cobol", "MOVE 1 TO A"],
    ];
    return table.map(([language, text]) => tokensOf(text, language).map(({ kind, from, to }) => `${kind[0]}${text.slice(from, to)}`).join(" "));
  });
  assert.deepEqual(found, [
    "kconst s`x` c// 1", "klet n0x1f", "kdef c# no kreturn s'''a\nb'''", "kfn s'x'",
    "n\"a\" n1 s\"b\" ktrue", "kif n1 kthen s\"a\" kfi c# end", "kSELECT s'it''s' kFROM c-- x", "n<a s\"x\" n> n1 n</a n>", "non ktrue c# y",
    "ncolor s\"x\"", "",
  ]);
});

onPage("a tool call grows under its name, and its row becomes the entry's", {}, async ({ page }) => {
  const shown = await page.evaluate(async () => {
    const { ItemView } = await import("/assets/message.js");
    const text = { type: "text", text: "Let me see." };
    const item = (...parts) => ({ itemId: "item", turnId: "turn", parts });
    const call = (args) => ({ type: "tool_call", name: "look_up", arguments: args });
    const view = new ItemView(item(text));
    const steps = ["", "{\"query\":", "{\"query\":\"<b>x</b>\"}"].map((args) => {
      view.update(item(text, call(args)));
      return [view.node.querySelector("summary").textContent, view.node.querySelector("pre").textContent];
    });
    return { steps, folds: view.node.querySelectorAll("details").length, bold: view.node.querySelectorAll("b").length };
  });
  assert.deepEqual(shown.steps, [
    ["Tool look_up ", ""],
    ["Tool look_up {\"query\":", "{\"query\":"],
    ["Tool look_up {\"query\":\"<b>x</b>\"}", "{\"query\":\"<b>x</b>\"}"],
  ]);
  assert.deepEqual([shown.folds, shown.bold], [1, 0]);
});

onPage("a model's HTML stays text", {}, async ({ page }) => {
  await say(page, "some html please");
  await settled(page, 1);
  const found = await page.evaluate(() => ({
    hacked: window.hacked ?? null,
    live: [...document.querySelectorAll("#log script, #log img, #log svg:not(.icon), #log [onerror], #log [onload]")].length,
    links: [...document.querySelectorAll("#log a")].map((link) => link.href),
    text: document.querySelector("#log .assistant").innerText,
  }));
  assert.deepEqual([found.hacked, found.live, found.links], [null, 0, ["https://evil.example/p.png", "https://example.com/"]]);
  assert.match(found.text, /<script>window\.hacked = 2<\/script>/);
  assert.match(found.text, /\[click\]\(javascript:window\.hacked=3\)/);
});

onPage("a compaction is a row, with its summary behind it; the chat is exported", { windowTokens: 2500 }, async ({ page, server }) => {
  for (let turn = 1; turn <= 3; turn += 1) {
    await say(page, `big one ${turn}`);
    await settled(page, turn);
  }
  const row = page.locator("#log .compaction");
  assert.equal(await row.count(), 1);
  assert.match(await row.innerText(), /[\d,]+ → [\d,]+ tokens \(−\d+ %\)/);
  const shown = await conversation(page);
  await page.reload();
  await page.waitForSelector("#log .compaction");
  assert.deepEqual(await conversation(page), shown);
  await row.locator("summary").click();
  assert.match(await row.innerText(), /plover/);
  assert.match(await row.innerText(), /the window was nearly full/);
  // What became of each message, with a link to it.
  const [world] = server.worlds.values();
  const { firstKeptEntryId } = world.entries.find((entry) => entry.type === "compaction");
  const at = world.entries.findIndex((entry) => entry.entryId === firstKeptEntryId);
  const end = world.entries.findIndex((entry) => entry.type === "compaction");
  await row.locator(".became h3").first().waitFor();
  assert.deepEqual(await row.locator(".became h3").allInnerTexts(), [`Kept word for word: ${end - at}`, `Summarised: ${at}`]);
  const links = row.locator(".became ul");
  assert.deepEqual([await links.nth(0).locator("b").count(), await links.nth(1).locator("b").allInnerTexts()], [end - at, ["You", "Answer", "You", "Answer"].slice(0, at)]);
  await links.nth(1).locator("button").first().click();
  await page.waitForSelector("#log .user.found:has-text('big one 1')");
  // All of it, as Markdown and as JSON, with what other branches have.
  const save = async (...choices) => {
    await page.click("#chat-menu");
    await page.click(".menu button:has-text('Export…')");
    for (const choice of choices) await page.check(`dialog [value=${choice}]`);
    const [download] = await Promise.all([page.waitForEvent("download"), page.click("dialog [type=submit]")]);
    return [download.suggestedFilename(), await readFile(await download.path(), "utf8")];
  };
  const [name, text] = await save();
  assert.match(name, /^big-one-1-\d{4}-\d\d-\d\d\.md$/);
  assert.match(text, /^# big one 1\n\n## You · .+\n\nbig one 1\n\n## Answer of mock-1 · .+\n\nThis answer fills[^#]+\n\n## You [\s\S]+\*Older messages were summarised for the model: from [\d,]+ to [\d,]+ tokens · .+\*\n\n> ## Goal\n/);
  world.move(world.entries[1].entryId);
  world.say("another branch", "command-other");
  await page.waitForSelector("#log .user:has-text('another branch')");
  const [, whole] = await save("all");
  assert.deepEqual(JSON.parse(whole).entries, [...world.tree.values()]);
  const [, branch] = await save("json");
  assert.deepEqual(JSON.parse(branch).entries, world.entries);
});

onPage("/compact, its progress, and cancelling it", { wordMillis: 1 }, async ({ page, server }) => {
  await say(page, "one");
  await settled(page, 1);
  await say(page, "/compact");
  await page.waitForSelector(".toast.error");
  assert.match(await page.innerText(".toast.error"), /^There is nothing worth summarising yet\. Go on; there is room\.\s+Details$/);
  await page.click(".toast.error summary");
  assert.match(await page.innerText(".toast.error code"), /^nothing_to_compact: /);
  await page.click(".toast .icon-button");
  await say(page, "two");
  await settled(page, 2);
  server.holdSteps();
  await say(page, "/compact mind the names");
  await page.click("[data-running=compaction] button");
  await page.waitForSelector("[data-running=compaction]", { state: "detached" });
  assert.equal(await page.locator("#log .compaction").count(), 0);
  server.release();
  await say(page, "/compact");
  await page.waitForSelector("#log .compaction");
  assert.match(await page.locator("#log .compaction").textContent(), /Why: asked for/);
});

onPage("the gauge and what is behind it", {}, async ({ page }) => {
  await say(page, "use a tool");
  await settled(page, 2);
  await say(page, "/context");
  await page.waitForSelector("#breakdown:popover-open");
  const counts = (await page.locator("#breakdown tbody tr td:nth-child(2)").allInnerTexts()).map((text) => Number(text.replace(/,/g, "")));
  const sum = Number((await page.innerText("#breakdown tfoot td:nth-child(2)")).replace(/,/g, ""));
  assert.equal(counts.reduce((total, count) => total + count, 0), sum);
  assert.ok(counts.length >= 4);
  const meter = page.locator("#gauge-meter");
  assert.equal(await meter.getAttribute("aria-valuetext"), `${await meter.getAttribute("aria-valuenow")} percent, ${sum} of 8,000 tokens`);
  await page.click("#breakdown button:has-text('next request')");
  await page.waitForSelector("#request details:has-text('You are a mock')");
});

onPage("Escape stops an answer; what was shown is kept and marked", { wordMillis: 15 }, async ({ page }) => {
  await say(page, "a long one, slowly");
  await page.waitForFunction(() => /Sentence 2/.test(document.querySelector("#tail")?.innerText));
  await page.keyboard.press("Escape");
  await page.waitForSelector("[data-ended=cancelled]");
  assert.match((await conversation(page))[1], /Sentence 1 .*Stopped here/s);
  await page.click("[data-ended] button");
  await page.waitForSelector("[data-ended]", { state: "detached" });
  await page.click("#stop");
  await page.waitForSelector("[data-ended=cancelled]");
});

onPage("a failed turn says so and can be retried", {}, async ({ page }) => {
  await say(page, "please fail");
  await page.waitForSelector("[data-ended=failed]");
  assert.match(await page.innerText("[data-ended]"), /^The answer broke off in the middle\. Try again\.\s+Details\s+Try again$/);
  await page.click("[data-ended] summary");
  assert.equal(await page.innerText("[data-ended] code"), "upstream_truncated: the answer stopped in the middle");
  for (const when of ["shown", "stored"]) {
    assert.match(await page.innerText("#log .assistant"), /^Answer:[\s\S]*The answer broke off here\./, when);
    await page.reload();
    await page.waitForSelector("[data-ended=failed]");
  }
  await page.click("[data-ended=failed] button");
  await settled(page, 2);
  assert.equal(await page.locator("[data-ended]").count(), 0);
});

onPage("inputs wait their turn, in order", { wordMillis: 1 }, async ({ page, server }) => {
  await say(page, "a long one, held");
  await page.waitForSelector("#stop:not([hidden])");
  for (const text of ["second", "third"]) await say(page, text);
  await page.waitForFunction(() => document.querySelectorAll("#tail .waiting").length === 2);
  assert.deepEqual(await page.locator("#tail .waiting > div").allInnerTexts(), ["second", "third"]);
  server.release();
  await settled(page, 3);
  assert.deepEqual(await page.locator("#log .message.user > div").allInnerTexts(), ["a long one, held", "second", "third"]);
});

onPage("a lost connection loses nothing and duplicates nothing", { wordMillis: 12, expected: AWAY }, async ({ page, server }) => {
  await say(page, "a long one, held");
  await page.waitForFunction(() => /Sentence 3/.test(document.querySelector("#tail")?.innerText));
  server.goAway();
  await page.waitForSelector("#connection-line:not([hidden])");
  await say(page, "written while away");
  server.comeBack();
  await page.waitForFunction(() => document.querySelector("#connection-line").hidden);
  server.release();
  await settled(page, 2);
  const live = await conversation(page);
  assert.equal(live.length, 4);
  assert.match(live[1], /Sentence 1 of a long answer\. Sentence 2 of .* Sentence 120 of a long answer\./s);
  assert.match(live[2], /written while away/);
  await page.reload();
  await page.waitForFunction(() => document.querySelectorAll("#log > li").length === 4);
  assert.deepEqual(await conversation(page), live);
});

onPage("a reload in the middle of an answer continues it", { wordMillis: 12 }, async ({ page, server }) => {
  await say(page, "a long one, held");
  await page.waitForFunction(() => /Sentence 3/.test(document.querySelector("#tail")?.innerText));
  await page.reload();
  await page.waitForFunction(() => /Sentence 1 .*Sentence 4/s.test(document.querySelector("#tail")?.innerText));
  server.release();
  await settled(page, 1);
  assert.match((await conversation(page))[1], /Sentence 1 of .* Sentence 120 of a long answer\./s);
});

onPage("a server that asks for a token gets a ticket", { token: "secret-token", expected: AWAY }, async ({ page }) => {
  await page.fill("dialog input", "wrong");
  await page.press("dialog input", "Enter");
  await page.waitForFunction(() => document.querySelector("dialog input")?.value === "");
  await page.fill("dialog input", "secret-token");
  await page.press("dialog input", "Enter");
  await page.waitForFunction(() => document.querySelector("#connection-line").hidden);
  await say(page, "hello");
  await settled(page, 1);
  const kept = await page.evaluate(() => [localStorage.length === 0 || !JSON.stringify(localStorage).includes("secret"), sessionStorage.getItem("reseed.token")]);
  assert.deepEqual(kept, [true, "secret-token"]);
  await page.reload();
  await page.waitForSelector("#log .assistant");
});

onPage("sessions: create, search, rename, switch, delete", {}, async ({ page, server }) => {
  for (const name of ["apples", "pears"]) {
    await page.click("#new-session");
    await say(page, name);
    await settled(page, 1);
  }
  await page.waitForFunction(() => document.querySelectorAll("#sessions .session").length === 2);
  assert.deepEqual(await page.locator("#sessions .name").allInnerTexts(), ["pears", "apples"]);
  assert.equal(await page.innerText("#sessions [aria-current=page] .name"), "pears");
  await page.fill("#search", "app");
  await page.waitForFunction(() => document.querySelectorAll("#sessions .session").length === 1);
  await page.click("#sessions .session a");
  await page.waitForFunction(() => document.querySelector("#log .user")?.innerText.includes("apples"));
  await page.fill("#search", "");
  await page.waitForFunction(() => document.querySelectorAll("#sessions .session").length === 2);
  await page.goBack();
  await page.waitForFunction(() => document.querySelector("#log .user")?.innerText.includes("pears"));
  await page.hover("#sessions .current");
  await page.click("#sessions .current [aria-label^=Rename]");
  await page.fill("dialog input", "plums");
  await page.press("dialog input", "Enter");
  await page.waitForFunction(() => document.querySelector("#title").textContent === "plums");
  await page.hover("#sessions .current");
  await page.click("#sessions .current [aria-label^=Delete]");
  await page.click("dialog .danger");
  await page.waitForFunction(() => document.querySelectorAll("#sessions .session").length === 1);
  assert.deepEqual([...server.worlds.values()].map((world) => world.name), ["apples"]);
  assert.equal(await page.innerText("#title"), "New chat");
});

onPage("scrolling up loads older messages, and the text being read stays in place", {}, async ({ page, server }) => {
  const world = server.make();
  for (let count = 1; count <= 160; count += 1) world.say(`message ${count}`, `command-${count}`);
  await page.evaluate((id) => (location.hash = `#session=${id}`), world.sessionId);
  await page.waitForFunction(() => document.querySelector("#log > li:last-child")?.innerText.includes("message 160"));
  assert.equal(await page.locator("#log > li").count(), 50);
  await page.evaluate(() => (document.querySelector("#chat").scrollTop = 0));
  await page.waitForFunction(() => Number(/\d+$/.exec(document.querySelector("#log > li").innerText)) <= 100);
  const read = await page.locator("#log .bubble", { hasText: /^message 111$/ }).evaluate((row) => row.getBoundingClientRect().top - document.querySelector("#chat").getBoundingClientRect().top);
  assert.ok(read >= 0 && read < 200, `the message at the top of the view is at ${read}`);
  // Scroll to the top repeatedly: if it is already there, setting the position does not scroll.
  await page.waitForFunction(() => {
    const chat = document.querySelector("#chat");
    chat.scrollTop = chat.scrollTop === 0 ? 40 : 0;
    return /message 1$/.test(document.querySelector("#log > li").innerText) && document.querySelector("#older").hidden;
  });
  assert.match(await page.innerText("#log > li:first-child"), /message 1$/);
  assert.equal(await page.locator("#older").isVisible(), false);
  await page.click("#jump");
  await page.waitForSelector("#jump", { state: "hidden" });
  assert.match(await page.innerText("#log > li:last-child"), /message 160$/);
  // On paper, the whole chat and nothing else.
  await page.reload();
  await page.waitForFunction(() => document.querySelector("#log > li:last-child")?.innerText.includes("message 160"));
  await page.evaluate(() => (window.print = () => dispatchEvent(new Event("beforeprint"))));
  await page.click("#chat-menu");
  await page.click(".menu button:has-text('Print…')");
  await page.waitForFunction(() => document.querySelectorAll("#log > li").length === 160);
  await page.emulateMedia({ media: "print" });
  const shown = await page.evaluate(() => [...document.querySelectorAll("button, input, textarea, .sidebar")].filter((node) => node.checkVisibility()).length);
  assert.deepEqual([shown, await page.evaluate(() => document.documentElement.scrollHeight > 6000)], [0, true]);
  await page.emulateMedia({ media: null });
  await page.evaluate(() => dispatchEvent(new Event("afterprint")));
  await page.waitForFunction(() => document.querySelectorAll("#log > li").length < 100);
});

onPage("a window nearly full under `manual` is said in a line", { windowTokens: 1400 }, async ({ page }) => {
  await say(page, "one");
  await settled(page, 1);
  await say(page, "/strategy manual");
  await say(page, "a big one");
  await settled(page, 2);
  await page.waitForSelector("#warning-line:not([hidden])");
  assert.match(await page.innerText("#warning-line"), /^The context window is \d+ % full\. Compact it to make room\.\s+Compact now$/);
  assert.equal(await page.getAttribute("#gauge", "data-level"), "full");
  await say(page, "a small one");
  await settled(page, 3);
  await page.click("#warning-line button");
  await page.waitForSelector("#log .compaction");
  await page.waitForSelector("#warning-line", { state: "hidden" });
});

onPage("unknown commands, and commands that lack a word, are put back", {}, async ({ page }) => {
  await say(page, "hello");
  await settled(page, 1);
  await say(page, "/nonsense");
  await page.waitForSelector(".toast.error:has-text('/nonsense')");
  assert.equal(await page.inputValue("#input"), "/nonsense");
  await page.fill("#input", "/co");
  assert.deepEqual(await page.locator("#hints code").allInnerTexts(), ["/context", "/compact [instructions]"]);
  await say(page, "/help");
  await page.waitForSelector("dialog:has-text('Commands and keys')");
  await page.keyboard.press("Escape");
});

onPage("on a phone everything fits and the drawer keeps the focus", { viewport: { width: 360, height: 640 } }, async ({ page }) => {
  await say(page, "show markdown");
  await settled(page, 1);
  const wide = () => page.evaluate(() => document.documentElement.scrollWidth > innerWidth);
  assert.equal(await wide(), false);
  assert.equal(await page.evaluate(() => getComputedStyle(document.querySelector("#input")).fontSize), "16px");
  await page.click("#sidebar-open");
  await page.waitForSelector("#sidebar.open");
  assert.equal(await page.evaluate(() => document.activeElement.id), "sidebar-close");
  assert.equal(await page.evaluate(() => document.querySelector("#page").inert), true);
  await page.keyboard.press("Escape");
  await page.waitForSelector("#sidebar:not(.open)", { state: "attached" });
  assert.equal(await page.evaluate(() => document.activeElement.id), "sidebar-open");
  await page.click("#gauge-button");
  await page.waitForSelector("#breakdown:popover-open");
  const box = await page.locator("#breakdown").boundingBox();
  assert.ok(box.x >= 0 && box.x + box.width <= 360 && box.y + box.height <= 640);
});

onPage("keyboard and screen reader", {}, async ({ page }) => {
  await page.keyboard.press("Shift+Tab");
  await page.evaluate(() => document.activeElement.blur());
  await page.keyboard.press("/");
  assert.equal(await page.evaluate(() => document.activeElement.id), "input");
  assert.equal(await page.inputValue("#input"), "");
  await page.keyboard.type("one");
  await page.keyboard.press("Shift+Enter");
  await page.keyboard.type("two");
  await page.keyboard.press("Enter");
  await settled(page, 1);
  assert.match((await conversation(page))[0], /one\ntwo/);
  assert.match(await page.innerText("#announcer"), /You said/);
  const nameless = await page.evaluate(() => [...document.querySelectorAll("button, input, textarea, a, [role=meter]")]
    .filter((node) => !(node.getAttribute("aria-label") || node.textContent.trim() || node.labels?.[0]?.textContent.trim()))
    .map((node) => node.outerHTML));
  assert.deepEqual(nameless, []);
  const marks = await page.evaluate(() => ["main", "header", "aside", "nav", "h1"].map((tag) => document.querySelectorAll(tag).length));
  assert.deepEqual(marks, [1, 1, 1, 1, 1]);
});

onPage("light and dark, kept across a reload", {}, async ({ page }) => {
  const background = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  await page.emulateMedia({ colorScheme: "light" });
  const light = await background();
  await page.emulateMedia({ colorScheme: "dark" });
  const dark = await background();
  assert.notEqual(light, dark);
  await page.click("#theme");
  assert.equal(await background(), light);
  await page.reload();
  assert.equal(await background(), light);
  await page.evaluate(() => localStorage.clear());
});
