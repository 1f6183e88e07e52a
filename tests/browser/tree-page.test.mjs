/** Moving in a session's tree, as a user sees it, on the page alone against the mock server. */

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { conversation, launch, newPage, say, settled } from "./browser.mjs";
import { MockServer } from "./mock.mjs";
import { act, edit, menuOf, shows, talk, treeRows } from "./steps.mjs";

let browser;
before(async () => (browser = await launch()));
after(() => browser.close());

function onPage(name, options, body) {
  test(name, async () => {
    const server = new MockServer(options);
    const url = await server.listen();
    const { page, faults } = await newPage(browser.context, options);
    try {
      await page.goto(url);
      await body({ page, server, url });
      assert.deepEqual([faults, server.faults], [[], []]);
    } finally {
      await page.close();
      await server.close();
    }
  });
}

onPage("asking again creates a branch; its versions are counted and can be switched, and a reload stays there", {}, async ({ page }) => {
  await talk(page, ["one", "two"]);
  await edit(page, 1, "two, but better");
  await shows(page, ["one", "two, but better"]);
  await settled(page, 2);
  const count = page.locator("#log .message.user").nth(1).locator(".siblings .count");
  assert.equal(await count.innerText(), "2/2");
  assert.equal(await page.locator("#log .siblings:not([hidden])").count(), 1);
  await page.click("#log [aria-label='Earlier version']");
  await shows(page, ["one", "two"]);
  assert.equal(await count.innerText(), "1/2");
  await page.waitForSelector(".toast.info:has-text('Version 1 of 2')");
  await page.waitForSelector("#log .message.user.found:has-text('two')");
  const shown = await conversation(page);
  await page.reload();
  await shows(page, ["one", "two"]);
  await page.waitForSelector("#log .siblings:not([hidden])");
  assert.deepEqual(await conversation(page), shown);
  await edit(page, 0, "another beginning");
  await shows(page, ["another beginning"]);
  await settled(page, 1);
  await page.click("#log [aria-label='Earlier version']");
  // Go to the newest message that followed.
  await shows(page, ["one", "two, but better"]);
});

onPage("asking again during a turn says that it stops it, and gives back queued inputs", { wordMillis: 30 }, async ({ page, server }) => {
  await say(page, "a long one, slowly");
  await page.waitForFunction(() => /Sentence 2/.test(document.querySelector("#tail")?.innerText));
  await say(page, "waits");
  await page.waitForSelector("[data-queued]");
  const row = page.locator("#log .message.user").first();
  await act(row, "Edit and ask again");
  assert.match(await row.locator(".editor .hint").innerText(), /asking again stops it, and the message that waits comes back/);
  await page.keyboard.press("Escape");
  assert.equal(await row.locator(".editor").count(), 0);
  assert.equal(await page.locator("#stop").isVisible(), true, "nothing was stopped");
  await act(row, "Edit and ask again");
  await row.locator("textarea").fill("a short one");
  await row.locator("button:has-text('Stop and ask again')").click();
  await shows(page, ["a short one"]);
  server.wordMillis = 1;
  await settled(page, 1);
  assert.equal(await page.inputValue("#input"), "waits");
  await page.click("#log [aria-label='Earlier version']");
  await page.waitForFunction(() => /Stopped here/.test(document.querySelector("#log")?.innerText));
});

onPage("an answer is regenerated, also with another model and during an answer; its versions can be switched", { wordMillis: 1 }, async ({ page, server }) => {
  await talk(page, ["one", "two"]);
  const answer = page.locator("#log .message.assistant").first();
  await act(answer, "Regenerate");
  await shows(page, ["one"]);
  await answer.locator(".count:has-text('2/2')").waitFor();
  await act(answer, "Regenerate with…");
  const dialog = page.locator("dialog:has-text('The chat goes on with this model')");
  assert.equal(await dialog.locator("#chat-model").inputValue(), "other");
  await dialog.locator("[type=submit]").click();
  await answer.locator(".count:has-text('3/3')").waitFor();
  const [world] = server.worlds.values();
  assert.deepEqual([world.model, world.entries.map((entry) => entry.model)], ["other", [undefined, "other"]]);
  await answer.locator("[aria-label='Earlier version']").click();
  await answer.locator(".count:has-text('2/3')").waitFor();
  await shows(page, ["one"]);
  await say(page, "/regenerate mock-1");
  await answer.locator(".count:has-text('4/4')").waitFor();
  assert.equal(world.model, "mock-1");
  await say(page, "a long one, held");
  await page.waitForSelector("#stop:not([hidden])");
  // The newest question has no answer yet: the command leaves it alone.
  await say(page, "/regenerate");
  await page.waitForSelector(".toast:has-text('The last message has no answer yet')");
  assert.equal(await page.inputValue("#input"), "/regenerate");
  await page.fill("#input", "");
  assert.equal(await page.locator("#stop").isVisible(), true);
  await act(answer, "Regenerate");
  await page.click("dialog button:has-text('Stop and regenerate')");
  await answer.locator(".count:has-text('5/5')").waitFor();
  await shows(page, ["one"]);
  assert.equal(await page.locator(".toast.error").count(), 0);
});

onPage("continuing from an earlier message, with a summary of the abandoned branch, its progress and its end", {}, async ({ page, server }) => {
  await talk(page, ["one", "two"]);
  const goOn = async (index) => {
    const row = page.locator("#log .message.assistant").nth(index);
    await act(row, "Continue from here");
  };
  await goOn(0);
  await page.check("dialog [name=summarize]");
  await page.fill("dialog .summary-choice .field", "the numbers");
  server.holdSteps();
  await page.click("dialog .primary");
  await page.waitForSelector("[data-running=compaction]:has-text('Summarising the branch that is left')");
  await page.click("[data-running=compaction] button");
  await page.waitForSelector(".toast:has-text('The chat is where it was')");
  await page.waitForSelector("[data-running=compaction]", { state: "detached" });
  await shows(page, ["one", "two"]);
  assert.equal(await page.locator(".toast.error").count(), 0);
  server.release();
  await goOn(0);
  await page.check("dialog [name=summarize]");
  await page.fill("dialog .summary-choice .field", "the numbers");
  await page.click("dialog .primary");
  await page.waitForSelector("#log summary:has-text('Summary of the branch that was left')");
  assert.match(await page.locator("#log .fold").textContent(), /It dwells on: the numbers/);
  await shows(page, ["one"]);
  await page.waitForSelector(".elsewhere:has-text('went on from here before')");
  await say(page, "three");
  await settled(page, 2);
  assert.equal(await page.locator("#log .message.user").nth(1).locator(".count").innerText(), "2/2");
  await page.waitForSelector(".elsewhere", { state: "detached" });
});

onPage("a connection lost while a branch is summarised: the move happens once, and is answered", { expected: /WebSocket connection to|net::ERR_/ }, async ({ page, server }) => {
  await talk(page, ["one", "two"]);
  const row = page.locator("#log .message.assistant").first();
  await act(row, "Continue from here");
  await page.check("dialog [name=summarize]");
  server.holdSteps();
  await page.click("dialog .primary");
  await page.waitForSelector("[data-running=compaction]");
  server.goAway();
  await page.waitForSelector("#connection-line:has-text('lost')");
  server.comeBack();
  await page.waitForSelector("#connection-line", { state: "hidden" });
  server.release();
  await page.waitForSelector("#log .fold:has-text('Summary of the branch')");
  await shows(page, ["one"]);
  await page.waitForSelector("[data-running=compaction]", { state: "detached" });
  assert.equal(await page.locator(".toast").count(), 0);
  assert.equal([...server.worlds.values()][0].tree.size, 5);
  assert.equal(await page.locator("#log > li").count(), 3);
});

onPage("going back to an abandoned branch, and bringing a summary along afterwards", {}, async ({ page }) => {
  await talk(page, ["one", "two"]);
  const row = page.locator("#log .message.assistant").first();
  await act(row, "Continue from here");
  await page.click("dialog .primary");
  await shows(page, ["one"]);
  await page.click(".elsewhere button");
  await shows(page, ["one", "two"]);
  await edit(page, 1, "three");
  await settled(page, 2);
  await page.click("#log [aria-label='Earlier version']");
  await shows(page, ["one", "two"]);
  await page.click(".toast button:has-text('Bring a summary')");
  await page.fill("dialog input", "the birds");
  await page.press("dialog input", "Enter");
  await page.waitForSelector("#log .fold");
  assert.match(await page.locator("#log .fold").textContent(), /the birds/);
  await shows(page, ["one", "two"]);
});

onPage("the tree panel shows the branches, and moves to them by mouse and by keyboard", {}, async ({ page }) => {
  await talk(page, ["one", "two"]);
  await edit(page, 1, "two again");
  await settled(page, 2);
  await page.click("#tree-open");
  const answer = (text, count) => `You said: “${text}”. That was message ${count}.`;
  assert.deepEqual(await treeRows(page), ["one", answer("one", 1), "two", answer("two", 2), "two again", `${answer("two again", 2)} <`]);
  assert.equal(await page.locator("#tree-rows .on-path[role=treeitem]").count(), 4);
  await page.click("#tree-rows li:nth-child(3)");
  await page.click("dialog .primary");
  await shows(page, ["one", "two"]);
  await page.waitForFunction(() => document.querySelector("#tree-rows [aria-current=true]")?.textContent.includes("“two”"));
  await page.focus("#tree-rows [tabindex='0']");
  await page.keyboard.press("Home");
  assert.equal(await page.evaluate(() => document.activeElement.querySelector(".what").textContent), "one");
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("ArrowDown");
  assert.equal(await page.evaluate(() => document.activeElement.querySelector(".what").textContent), "two again");
  await page.keyboard.press("Enter");
  await page.check("dialog [value=at]");
  await page.click("dialog .primary");
  await shows(page, ["one", "two again"]);
  await page.waitForSelector(".elsewhere");
  assert.equal(await page.locator("#log .message.assistant").count(), 1);
  await page.focus("#tree-rows [tabindex='0']");
  await page.keyboard.press("Escape");
  assert.equal(await page.locator("#tree").isVisible(), false);
  assert.equal(await page.evaluate(() => document.activeElement.id), "tree-open");
});

onPage("every kind of tree row shows its text beside its symbol", {}, async ({ page }) => {
  await talk(page, ["one", "two"]);
  await say(page, "/compact");
  await page.waitForSelector("#log .compaction");
  await say(page, "use a tool");
  await settled(page, 4);
  await page.click("#tree-open");
  await page.waitForFunction(() => document.querySelectorAll("#tree-rows > li").length >= 8);
  const wrong = await page.evaluate(() => [...document.querySelectorAll("#tree-rows > li")].filter((row) => {
    const words = row.querySelector(".what").getBoundingClientRect();
    const box = row.getBoundingClientRect();
    return words.height < 10 || words.width < 50 || words.top < box.top - 1 || words.bottom > box.bottom + 1;
  }).map((row) => row.className));
  assert.deepEqual(wrong, []);
  assert.equal(await page.locator("#tree-rows > li.compaction").count(), 1);
});

onPage("a large tree is folded, and its lower levels are loaded on demand", { nodesMax: 30 }, async ({ page, server }) => {
  const world = server.make();
  for (let count = 1; count <= 100; count += 1) world.say(`message ${count}`, `command-${count}`);
  const tip = world.leafId;
  world.move(world.entries[4].entryId);
  for (let count = 1; count <= 40; count += 1) world.say(`other ${count}`, `other-${count}`);
  await page.evaluate((id) => (location.hash = `#session=${id}`), world.sessionId);
  await page.waitForFunction(() => document.querySelector("#log > li:last-child")?.innerText.includes("other 40"));
  await say(page, "/tree");
  await page.waitForSelector("#tree-rows .folded");
  const before = await treeRows(page);
  assert.ok(before.length < 40 && before.includes("message 6") && before.at(-1) === "other 40 <", before.join("\n"));
  assert.ok(!before.includes("message 100"));
  for (let tries = 0; tries < 12 && !(await treeRows(page)).includes("message 100"); tries += 1) {
    const known = await page.evaluate(() => document.querySelector("#tree-rows .more").dataset.key);
    await page.click("#tree-rows .more");
    await page.waitForFunction((key) => document.querySelector("#tree-rows .more")?.dataset.key !== key, known);
  }
  assert.ok((await treeRows(page)).includes("message 100"));
  await page.locator("#tree-rows li", { hasText: /^.*message 100/ }).click();
  await page.click("dialog .primary");
  await page.waitForFunction(() => document.querySelector("#log > li:last-child")?.innerText.includes("message 100"));
  assert.equal(world.leafId, tip);
  await page.locator("#tree-rows .folded").first().click();
  assert.ok((await treeRows(page)).length > before.length);
});

onPage("labels are chips, quiet lines and names in the tree; a fork is another session", {}, async ({ page, server }) => {
  await talk(page, ["one", "two"]);
  const row = page.locator("#log .message.assistant").first();
  await act(row, "Label");
  await page.fill("dialog input", "the start");
  await page.press("dialog input", "Enter");
  await page.waitForSelector("#log .note:has-text('Label “the start” on “You said')");
  assert.equal(await row.locator(".label-chip").innerText(), "the start");
  await page.click("#tree-open");
  await page.waitForSelector("#tree-rows .label-chip:has-text('the start')");
  await act(row, "Change label");
  await page.fill("dialog input", "");
  await page.press("dialog input", "Enter");
  await page.waitForSelector("#log .note:has-text('Label taken away')");
  assert.equal(await page.locator("#page .label-chip:visible").count(), 0);
  const from = page.url();
  const second = page.locator("#log .message.user").nth(1);
  await act(second, "Fork into a new chat");
  await page.waitForFunction((url) => location.href !== url, from);
  await shows(page, ["one"]);
  assert.equal(await page.inputValue("#input"), "two");
  assert.equal(server.worlds.size, 2);
});

onPage("queued inputs can be taken back, reordered, and sent into the running turn", { wordMillis: 1 }, async ({ page, server }) => {
  await say(page, "a long one, held");
  await page.waitForSelector("#stop:not([hidden])");
  for (const text of ["first", "second", "third"]) await say(page, text);
  await page.waitForFunction(() => document.querySelectorAll("[data-queued]").length === 3);
  const waiting = () => page.locator("[data-queued] .bubble").allInnerTexts();
  const order = (expected) => page.waitForFunction((texts) => [...document.querySelectorAll("[data-queued] .bubble")].map((node) => node.innerText).join() === texts, expected);
  assert.match(await page.locator("[data-queued]").nth(1).innerText(), /Waiting, 2 of 3/);
  await page.locator("[data-queued]").nth(2).locator("[aria-label='Send earlier']").click();
  await order("first,third,second");
  await page.locator("[data-queued]").first().locator("[aria-label='Send later']").click();
  await order("third,first,second");
  await page.locator("[data-queued]").nth(1).locator("[aria-label='Take it back']").click();
  await order("third,second");
  assert.equal(await page.inputValue("#input"), "first");
  await page.locator("[data-queued]").nth(1).locator(".steer").click();
  await order("second,third");
  assert.match(await page.locator("[data-queued]").first().innerText(), /Goes with the next request/);
  await page.press("#input", "Alt+Enter");
  await order("second,first,third");
  assert.deepEqual(await waiting(), ["second", "first", "third"]);
  server.release();
  await shows(page, ["a long one, held", "second", "first", "third"]);
});

onPage("a steering input is in the running turn's next request", { wordMillis: 1 }, async ({ page, server }) => {
  await say(page, "a tool, held");
  await page.waitForSelector("#stop:not([hidden])");
  await page.fill("#input", "and this");
  await page.click("#steer");
  await page.waitForSelector("[data-queued]:has-text('Goes with the next request')");
  server.release();
  await settled(page, 2);
  assert.match((await conversation(page)).at(-1), /You said: “and this”/);
  assert.equal(await page.locator("#log > li").count(), 5, "one turn: question, call, result, what was steered, answer");
});

onPage("the list shows changes of other sessions by itself, and works without the watch feature", {}, async ({ page, server }) => {
  await say(page, "mine");
  await settled(page, 1);
  const other = server.make();
  other.update({ name: "made elsewhere" });
  await page.waitForSelector("#sessions .name:has-text('made elsewhere')");
  other.startTurn();
  await page.waitForSelector("#sessions .session:has-text('made elsewhere') .busy");
  other.finishTurn();
  await page.waitForSelector("#sessions .session:has-text('made elsewhere') .busy", { state: "detached" });
  await page.fill("#search", "mine");
  await page.waitForFunction(() => document.querySelectorAll("#sessions .session").length === 1);
  other.update({ name: "elsewhere, and mine" });
  await page.waitForFunction(() => document.querySelectorAll("#sessions .session").length === 2);
  await page.fill("#search", "");
  server.worlds.delete(other.sessionId);
  server.tellWatchers(other, { deleted: true });
  await page.waitForFunction(() => document.querySelectorAll("#sessions .session").length === 1);
});

onPage("a server without any of these features: a plain chat", { features: [] }, async ({ page, server }) => {
  await talk(page, ["one", "two"]);
  await say(page, "a long one, held");
  await page.waitForSelector("#stop:not([hidden])");
  await say(page, "waits");
  await page.waitForSelector("[data-queued]");
  assert.equal(await page.locator("#tree-open, #steer, [data-queued] button").filter({ visible: true }).count(), 0);
  assert.deepEqual(await menuOf(page.locator("#log .message.user").first()), ["Copy message"]);
  server.release();
  await settled(page, 4);
  await page.waitForFunction(() => document.querySelectorAll("#sessions .session").length === 1);
  await say(page, "/preview");
  await page.waitForSelector("dialog");
  assert.deepEqual(await page.locator("dialog button:not([hidden])").allInnerTexts(), ["Close", "Compact now"]);
  await page.click("dialog button:has-text('Compact now')");
  await page.waitForSelector("#log .compaction");
  assert.equal(await page.locator("#log .undo-row button").count(), 0);
});

onPage("a read-only user sees the chat as it moves, and can do nothing in it", {}, async ({ page, server }) => {
  await talk(page, ["one", "two"]);
  // The window that has it open continues to write, so that there is something to see.
  server.damaged.add(server.worlds.keys().next().value);
  const { page: other, faults } = await newPage(browser.context);
  await other.goto(page.url());
  await other.waitForSelector("#role-line:not([hidden])");
  assert.deepEqual(await menuOf(other.locator("#log .message.assistant").first()), ["Copy answer"]);
  await edit(page, 1, "again");
  await shows(other, ["one", "again"]);
  await settled(other, 2);
  assert.equal(await other.locator("#log .siblings button:enabled").count(), 0);
  await page.click("#log [aria-label='Earlier version']");
  await shows(other, ["one", "two"]);
  assert.deepEqual(faults, []);
  await other.close();
});

onPage("clients' messages, models and names are lines of the chat", {}, async ({ page, server }) => {
  await say(page, "one");
  await settled(page, 1);
  const world = server.worlds.values().next().value;
  world.append({ type: "custom_message", customType: "weather", content: [{ type: "text", text: "It rains." }], display: true });
  world.append({ type: "custom_message", customType: "secret", content: [{ type: "text", text: "Hidden." }], display: false });
  world.append({ type: "model_change", model: "mock-2" });
  world.append({ type: "thinking_level_change", thinkingLevel: "high" });
  world.append({ type: "session_info", name: "Birds" });
  world.append({ type: "foreign", foreignType: "odd", data: {} });
  await page.waitForSelector("#log .note:has-text('Birds')");
  const rows = (await conversation(page)).slice(2).map((row) => row.replace(/\s+/g, " "));
  assert.deepEqual(rows, ["weather It rains.", "The model is mock-2 from here on.", "Reasoning effort: high from here on.", "The chat is called “Birds”."]);
});

onPage("on a phone the tree fills the screen and closes on a move", { viewport: { width: 360, height: 640 } }, async ({ page }) => {
  await talk(page, ["one", "two"]);
  await edit(page, 1, "two again");
  await settled(page, 2);
  await page.click("#tree-open");
  const box = await page.locator("#tree").boundingBox();
  assert.deepEqual([box.x, box.width], [0, 360]);
  assert.equal(await page.evaluate(() => document.documentElement.scrollWidth > innerWidth), false);
  await page.click("#tree-rows li:nth-child(3)");
  await page.click("dialog .primary");
  await shows(page, ["one", "two"]);
  assert.equal(await page.locator("#tree").isVisible(), false);
});
