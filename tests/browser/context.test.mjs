/** Compaction, preview, undo, pins and strategies, on the page against the mock server. */

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { launch, newPage, say, settled } from "./browser.mjs";
import { SCREENS } from "./mock-page.mjs";
import { MockServer } from "./mock.mjs";
import { act, compactDialog, menuOf, pin, preview, talk } from "./steps.mjs";

/** Console messages of the browser while a server is down; tests of that expect them. */
const AWAY = /WebSocket connection to|net::ERR_CONNECTION_REFUSED/;

let browser;
before(async () => (browser = await launch()));
after(() => browser.close());

/** Runs a test on a fresh server and page, and then checks for faults that must never occur. */
function onPage(name, options, body) {
  test(name, async () => {
    const server = new MockServer(options);
    const url = await server.listen();
    const { page, faults } = await newPage(browser.context, options);
    try {
      await page.goto(url);
      await body({ page, server, url, world: () => [...server.worlds.values()][0] });
      assert.deepEqual([faults, server.faults], [[], []]);
    } finally {
      await page.close();
      await server.close();
    }
  });
}

/** Returns the rows of a column of the comparison: who, what becomes of it, whether it is pinned. */
function column(page, title) {
  return page.locator(`dialog .side[aria-label="${title}"] > ol > li`).evaluateAll((rows) => rows.map((row) => {
    const who = row.querySelector(".who")?.firstChild.textContent;
    return `${who} ${row.className}${row.querySelector(".who .icon") ? " pinned" : ""}`;
  }));
}

onPage("a preview shows what goes and what stays, and applying does exactly that", {}, async ({ page, world }) => {
  await say(page, "use a tool");
  await settled(page, 2);
  await say(page, "two");
  await settled(page, 3);
  await pin(page, ".message.user", 0);
  await compactDialog(page);
  assert.equal(await page.evaluate(() => document.activeElement.id), "compact-about");
  await page.fill("#compact-about", "mind the names");
  await page.selectOption("#compact-strategy", "truncate");
  await page.check("#compact-rebuild");
  await page.click("dialog button:has-text('Preview')");
  await page.waitForSelector("dialog .difference");
  assert.equal(await page.evaluate(() => document.activeElement.textContent), "What it would come to");
  assert.deepEqual(await column(page, "The model sees now"), ["You stays pinned", "Answer goes", "Tool goes", "Answer goes", "You stays", "Answer stays"]);
  assert.deepEqual(await column(page, "It would see"), ["New summary new", "You stays pinned", "You stays", "Answer stays"]);
  const text = await page.innerText("dialog .preview");
  assert.match(text, /[\d,]+ → [\d,]+ tokens/);
  assert.match(text, /Goes: 3 messages, \d+ tokens\s+Stays: 3 messages, \d+ tokens/);
  assert.match(text, /How: a summary by the model/);
  assert.match(text, /Asked for: mind the names, truncate, anew\. <img src=x/);
  assert.deepEqual([await page.evaluate(() => window.hacked ?? null), await page.locator("dialog img").count()], [null, 0]);
  assert.equal(await page.locator("#log .compaction").count(), 0, "nothing has changed yet");
  await page.click("dialog button:has-text('Apply')");
  await page.waitForSelector("dialog", { state: "detached" });
  await page.waitForSelector("#log .compaction");
  const { keptEntryIds, trigger } = world().inEffect();
  assert.deepEqual([keptEntryIds, trigger], [[world().path()[0].entryId], "manual"]);
});

onPage("tool results that would be cleared are marked as shortened", {}, async ({ page }) => {
  await say(page, "use a tool");
  await settled(page, 2);
  await talk(page, ["two"], 2);
  await preview(page, "please clear");
  assert.deepEqual(await column(page, "The model sees now"), ["You stays", "Answer stays", "Tool shortened", "Answer stays", "You stays", "Answer stays"]);
  assert.match(await page.innerText("dialog .preview"), /Stays: 6 messages, \d+ tokens\s+Shortened: 1 of them/);
  assert.match(await page.innerText("dialog .side[aria-label='It would see'] li.shortened"), /Only its beginning/);
  assert.equal(await page.locator("dialog li.new").count(), 0);
  await page.click("dialog button:has-text('Apply')");
  await page.waitForSelector("#log .compaction");
  assert.match(await page.innerText("#log .compaction"), /Old tool results cleared .* details/);
});

onPage("a preview is discarded, changed, stopped, or refused, and nothing has happened", { wordMillis: 1 }, async ({ page, server, world }) => {
  await talk(page, ["one"]);
  await compactDialog(page);
  await page.click("dialog button:has-text('Preview')");
  await page.waitForSelector("dialog .said.wrong:has-text('nothing worth summarising')");
  // Clear the text, because the next message waited for says the same.
  await page.locator("dialog .said.wrong:has-text('nothing')").evaluate((node) => (node.textContent = ""));
  await page.click("dialog button:has-text('Compact now')");
  await page.waitForSelector("dialog .said.wrong:has-text('nothing worth summarising')");
  await page.keyboard.press("Escape");
  await page.waitForSelector("dialog", { state: "detached" });
  await talk(page, ["two"], 1);
  await preview(page, "first wish");
  await page.click("dialog button:has-text('Change')");
  assert.equal(await page.inputValue("#compact-about"), "first wish");
  await page.fill("#compact-about", "please refuse");
  await page.click("dialog button:has-text('Preview')");
  await page.waitForSelector("dialog .said.wrong:has-text('model’s server failed')");
  assert.equal(await page.inputValue("#compact-about"), "please refuse");
  server.holdSteps();
  await page.click("dialog button:has-text('Preview')");
  await page.waitForSelector("dialog .said:has-text('0 of 3')");
  assert.equal(await page.locator("[data-running]").count(), 0, "a preview is not a compaction");
  await page.click("dialog button:has-text('Stop')");
  await page.waitForSelector("#compact-about");
  assert.equal(world().previewing, null);
  server.release();
  await page.fill("#compact-about", "again");
  await page.click("dialog button:has-text('Preview')");
  await page.waitForSelector("dialog .difference");
  await page.click("dialog button:has-text('Discard')");
  await page.waitForSelector("dialog", { state: "detached" });
  assert.deepEqual(await page.locator("#log .compaction, .toast.error").allInnerTexts(), []);
  assert.equal(world().compactions, 0);
});

onPage("instructions are measured in bytes, as the server does, and never cut", {}, async ({ page, world }) => {
  await talk(page, ["one", "two"]);
  // The limit counts bytes, so it admits half as many two-byte characters as one-byte ones.
  const [fits, tooLong] = ["é".repeat(8192), `${"é".repeat(8192)}ab`];
  await compactDialog(page);
  const said = page.locator("dialog form .said.wrong");
  await page.fill("#compact-about", tooLong);
  assert.match(await said.innerText(), /too long by about 2 characters\. Shorten them and try again\./);
  for (const button of ["Preview", "Compact now"]) {
    await page.click(`dialog button:has-text('${button}')`);
    assert.equal(await page.inputValue("#compact-about"), tooLong);
    assert.equal(await page.evaluate(() => document.activeElement.id), "compact-about");
  }
  assert.deepEqual([world().compactions, world().previewing ?? null], [0, null]);
  await page.fill("#compact-about", fits);
  await said.waitFor({ state: "hidden" });
  await page.click("dialog button:has-text('Preview')");
  await page.waitForSelector("dialog .difference");
  assert.ok((await page.locator("dialog li.new").textContent()).includes(fits));
  await page.keyboard.press("Escape");
  // The same limit applies after a command, and when leaving a branch.
  await say(page, `/compact ${tooLong}`);
  await page.waitForSelector(".toast.error:has-text('too long by about')");
  assert.equal(await page.inputValue("#input"), `/compact ${tooLong}`);
  await page.fill("#input", "");
  const row = page.locator("#log .message.assistant").first();
  await act(row, "Continue from here");
  await page.check("dialog [name=summarize]");
  await page.fill("dialog .summary-choice .field", tooLong);
  await page.click("dialog .primary");
  await page.waitForSelector("dialog .summary-choice .said:has-text('too long by about')");
  await page.uncheck("dialog [name=summarize]");
  await page.click("dialog .primary");
  await page.waitForSelector("dialog", { state: "detached" });
});

onPage("a preview's error is in view at 200 % zoom", { viewport: SCREENS.zoom }, async ({ page }) => {
  await talk(page, ["one"]);
  await compactDialog(page);
  await page.click("dialog button:has-text('Preview')");
  await page.waitForSelector("dialog .said.wrong:has-text('nothing worth summarising')");
  const seen = await page.evaluate(() => {
    const said = document.querySelector("dialog > .said");
    const { left, top, bottom } = said.getBoundingClientRect();
    return [top + 2, bottom - 2].map((y) => said.contains(document.elementFromPoint(left + 12, y)));
  });
  assert.deepEqual(seen, [true, true]);
});

onPage("a preview that expired, or whose history changed, says so and offers another", {}, async ({ page, world }) => {
  await talk(page, ["one", "two", "three"]);
  await preview(page, "very soon");
  await page.waitForSelector("dialog .said.wrong:has-text('expired')");
  assert.equal(await page.evaluate(() => document.activeElement.textContent), "New preview");
  assert.equal(await page.locator("dialog button:has-text('Apply')").count(), 0);
  await page.click("dialog button:has-text('New preview')");
  await page.waitForSelector("dialog .preview:not(.over) .difference");
  await page.keyboard.press("Escape");
  await preview(page, "again");
  world().move(world().path()[1].entryId);
  await page.click("dialog button:has-text('Apply')");
  await page.waitForSelector("dialog .said.wrong:has-text('has changed since this preview')");
  assert.equal(await page.locator("dialog .preview.over").count(), 1);
  world().say("four", "command-0004");
  world().say("five", "command-0005");
  await page.click("dialog button:has-text('New preview')");
  await page.waitForSelector("dialog .preview:not(.over) .difference");
  await page.click("dialog button:has-text('Apply')");
  await page.waitForSelector("#log .compaction");
});

onPage("a preview without the messages, or after a lost connection, still shows what it can", { expected: AWAY }, async ({ page, server }) => {
  await talk(page, ["one", "two"]);
  server.hidesContext = true;
  await preview(page, "", ".side");
  assert.match(await page.innerText("dialog .preview"), /Goes: 2 messages.*could not be shown.*plover/s);
  await page.keyboard.press("Escape");
  server.holdSteps();
  await compactDialog(page);
  await page.click("dialog button:has-text('Preview')");
  await page.waitForSelector("dialog .said:has-text('Making')");
  server.dropAll();
  await page.waitForSelector("dialog .said.wrong:has-text('connection was lost')");
  await page.waitForSelector("dialog button:has-text('Preview')");
});

onPage("another session closes the dialog", {}, async ({ page, server }) => {
  await talk(page, ["one", "two"]);
  const other = server.make();
  await preview(page, "");
  await page.evaluate((id) => (location.hash = `#session=${id}`), other.sessionId);
  await page.waitForSelector("dialog", { state: "detached" });
});

onPage("a compaction is undone and marked, newest first, also after a reload", {}, async ({ page, server, world }) => {
  await talk(page, ["one", "two", "three"]);
  await say(page, "/compact extract");
  await page.waitForSelector("#log .compaction");
  await talk(page, ["four"], 3);
  await say(page, "/compact");
  await page.waitForFunction(() => document.querySelectorAll("#log .compaction").length === 2);
  const rows = page.locator("#log .compaction");
  await rows.first().locator("summary").click();
  const facts = await rows.first().locator(".facts").innerText();
  for (const fact of ["an extract by rule", "a summary by the model (it broke off)", "piece by piece (it came back empty)", "900 tokens in", "You waited 420 ms"]) assert.ok(facts.includes(fact), `${fact} in ${facts}`);
  assert.deepEqual(await page.locator("#log .compaction .undo-row").allInnerTexts(), ["", "Undo"]);
  server.wordMillis = 15;
  await say(page, "a long one, slowly");
  await page.waitForSelector("#log .undo-row button:disabled");
  await page.click("#stop");
  await page.waitForSelector("#log .undo-row button:enabled");
  server.wordMillis = 1;
  const before = world().contextInfo().tokenCount;
  await page.locator("#log .undo-row button").focus();
  await page.keyboard.press("Enter");
  await page.waitForSelector("#log .compaction.undone");
  assert.match(await page.innerText("#announcer"), /undone/);
  assert.ok(world().contextInfo().tokenCount > before);
  await page.waitForFunction(() => document.querySelectorAll("#log .compaction")[0].querySelector(".undo-row button"));
  assert.match(await rows.nth(1).innerText(), /Undone: the model sees what was said before it/);
  await say(page, "/undo");
  await page.waitForFunction(() => document.querySelectorAll("#log .compaction.undone").length === 2);
  await say(page, "/undo");
  await page.waitForSelector(".toast.error:has-text('nothing_to_undo')");
  await page.reload();
  await page.waitForFunction(() => document.querySelectorAll("#log .compaction.undone").length === 2);
  assert.equal(await page.locator("#log .undo-row button").count(), 0);
});

onPage("every kind of message can be pinned, a call with its result, and unpinned in the list", { pinsMax: 4 }, async ({ page, world }) => {
  await say(page, "use a tool");
  await settled(page, 2);
  await pin(page, ".message.user", 0);
  await pin(page, ".message.tool", 0);
  assert.deepEqual(await page.locator("#log .pin-chip:not([hidden])").allInnerTexts(), ["Pinned", "Pinned with its call", "Pinned"]);
  await pin(page, ".message.assistant", 1);
  await page.waitForFunction(() => document.querySelectorAll("#log .pin-chip:not([hidden])").length === 4);
  assert.equal(await page.locator("#log .message.user .pin-chip").first().isVisible(), true);
  await talk(page, ["two"], 2);
  await act(page.locator("#log .message.user").nth(1), "Pin");
  await page.waitForSelector(".toast.error:has-text('too_many_pins')");
  await page.reload();
  await page.waitForFunction(() => document.querySelectorAll("#log .pin-chip:not([hidden])").length === 4);
  await page.click("#gauge-button");
  await page.click("#breakdown .pins summary");
  assert.deepEqual(await page.locator("#breakdown .pins li .what").allInnerTexts(), ["use a tool", "no such tool: `look_up`", "You said: “use a tool”. That was message 1."]);
  await page.locator("#breakdown .pins [aria-label=Unpin]").nth(1).focus();
  await page.keyboard.press("Enter");
  await page.waitForFunction(() => document.querySelectorAll("#breakdown .pins li").length === 2);
  assert.equal(await page.evaluate(() => document.querySelector("#breakdown .pins").contains(document.activeElement)), true);
  assert.equal(world().pins.length, 2);
  await page.locator("#breakdown .pins .what").first().click();
  await page.waitForSelector("#log .message.user.found");
  await pin(page, ".message.user", 0, false);
  assert.deepEqual(world().pins.length, 1);
});

onPage("a background compaction is unobtrusive: turns continue, input is accepted, and then it appears", { windowTokens: 3000, wordMillis: 1 }, async ({ page, server, world }) => {
  await talk(page, ["big one"]);
  world().background = 0.4;
  server.holdSteps();
  await talk(page, ["a small one"], 1);
  await page.waitForSelector("[data-running=background]");
  assert.equal(await page.locator("#stop").isVisible(), false);
  await say(page, "another small one");
  await page.waitForFunction(() => document.querySelectorAll("#log .message.user").length === 3);
  assert.equal(await page.locator("#tail .waiting").count(), 0, "it does not wait");
  server.release();
  await page.waitForSelector("#log .compaction");
  await page.waitForSelector("[data-running]", { state: "detached" });
  await page.locator("#log .compaction summary").click();
  assert.match(await page.innerText("#log .compaction .facts"), /Nobody waited\s+Made while you talked/);
  assert.match(await page.innerText("#announcer"), /compacted, by \d+ percent, while you talked|You said/);
  assert.equal(await page.locator(".toast").count(), 0);
  assert.equal(world().compactions, 1);
});

onPage("a background compaction is cancelled or invalidated quietly", { windowTokens: 3000, wordMillis: 1 }, async ({ page, server, world }) => {
  await talk(page, ["big one"]);
  world().background = 0.4;
  server.holdSteps();
  await talk(page, ["a small one"], 1);
  await page.waitForSelector("[data-running=background]");
  // The key stops what the user waits for, and nobody waits for this.
  await page.focus("#input");
  await page.keyboard.press("Escape");
  assert.ok(world().compaction?.background);
  await page.reload();
  await page.waitForSelector("[data-running=background]");
  await page.click("[data-running=background] button");
  await page.waitForSelector("[data-running]", { state: "detached" });
  await page.waitForSelector(".toast.info:has-text('cancelled')");
  world().startCompaction("threshold", true);
  await page.waitForSelector("[data-running=background]");
  world().voidRunning();
  await page.waitForSelector("[data-running]", { state: "detached" });
  world().startCompaction("threshold", true);
  await page.waitForSelector("[data-running=background]");
  world().failCompaction("upstream_unavailable", "the model's server did not answer");
  await page.waitForSelector(".toast.info:has-text('did not answer')");
  assert.equal(await page.locator(".toast").count(), 2);
  assert.equal(await page.locator("#log .compaction").count(), 0);
});

onPage("the breaker says why, and compacting now is the way out", {}, async ({ page, world }) => {
  await talk(page, ["one", "two"]);
  const rest = (breaker) => {
    world().breaker = { failures: 3, message: "for programs", ...breaker };
    // The page learns of this through a failed compaction.
    world().startCompaction("threshold", true);
    world().voidRunning();
  };
  rest({ reason: "failures", retryAt: new Date(Date.now() + 60_000).toISOString() });
  await page.waitForSelector("#warning-line:has-text('the last 3 failed. It is tried again at')");
  rest({ reason: "undone", failures: 0, retryAboveTokens: 900 });
  await page.waitForSelector("#warning-line", { state: "hidden" });
  await page.click("#gauge-button");
  assert.match(await page.innerText("#breakdown .breaker"), /A compaction was undone.* above 900 tokens/);
  await page.keyboard.press("Escape");
  rest({ reason: "no_gain", failures: 2, retryAboveTokens: 1234 });
  await page.waitForSelector("#warning-line:has-text('the last 2 made too little room. It is tried again above 1,234 tokens.')");
  await page.click("#gauge-button");
  assert.match(await page.innerText("#breakdown .breaker"), /rests/);
  await page.click("#breakdown button:has-text('Compact now')");
  await page.waitForSelector("#log .compaction");
  await page.waitForSelector("#warning-line", { state: "hidden" });
});

onPage("the strategy is chosen with its settings; an invalid setting is reported at its field", { background: 0.85 }, async ({ page, world }) => {
  await talk(page, ["one"]);
  const marks = () => page.locator("#gauge-meter .limit").evaluateAll((all) => all.map((node) => `${node.className} ${node.style.getPropertyValue("--at")}`));
  assert.deepEqual(await marks(), ["limit soft 68%", "limit hard 80%"]);
  await page.click("#gauge-button");
  await page.click("#breakdown .strategy summary");
  assert.equal(await page.inputValue("#strategy-name"), "threshold");
  await page.fill("#setting-threshold", "50");
  await page.fill("#setting-target", "60");
  await page.click("#breakdown .strategy button");
  await page.waitForSelector("#breakdown .said.wrong:has-text('below the threshold of 0.5, not 0.6')");
  assert.equal(await page.evaluate(() => document.activeElement.id), "setting-target");
  await page.fill("#setting-target", "30");
  await page.keyboard.press("Enter");
  await page.waitForFunction(() => document.querySelector("#gauge-meter .limit.hard")?.style.getPropertyValue("--at") === "50%");
  assert.deepEqual([world().strategy, world().settings.strategySettings], ["threshold", { threshold: 0.5, target: 0.3 }]);
  // News about the window leaves the text being written alone.
  await page.fill("#setting-background", "9");
  world().update({ model: "mock-2" });
  await page.waitForSelector("#breakdown dd:has-text('mock-2')");
  assert.equal(await page.inputValue("#setting-background"), "9");
  await page.selectOption("#strategy-name", "pipeline");
  await page.fill("#setting-steps", "tool_results, threshold");
  await page.click("#breakdown .strategy button");
  await page.waitForFunction(() => [...document.querySelectorAll("#breakdown dd")].some((node) => node.textContent === "pipeline"));
  assert.deepEqual(world().settings.strategySettings, { threshold: 0.5, target: 0.3, steps: ["tool_results", "threshold"] });
  await page.selectOption("#strategy-name", "manual");
  assert.match(await page.innerText("#breakdown .strategy .hint"), /Off: never compacts by itself/);
  await page.click("#breakdown .strategy button");
  await page.waitForSelector("#breakdown dd:has-text('never')");
  assert.deepEqual(await marks(), []);
  await page.reload();
  await page.click("#gauge-button");
  await page.click("#breakdown .strategy summary");
  assert.equal(await page.inputValue("#strategy-name"), "manual");
});

onPage("an observer sees everything and changes nothing", {}, async ({ page, server, world }) => {
  await talk(page, ["one", "two"]);
  await pin(page, ".message.user", 0);
  await say(page, "/compact");
  await page.waitForSelector("#log .compaction");
  server.damaged.add(world().sessionId);
  const { page: other, faults } = await newPage(browser.context);
  await other.goto(page.url());
  await other.waitForSelector("#role-line:not([hidden])");
  await other.waitForSelector("#log .compaction");
  assert.deepEqual(await menuOf(other.locator("#log .message.user").first()), ["Copy message"]);
  assert.deepEqual([await other.locator("#log .pin-chip:not([hidden])").count(), await other.locator("#log .undo-row button").count()], [1, 0]);
  await other.click("#gauge-button");
  await other.click("#breakdown .strategy summary");
  assert.equal(await other.locator("#breakdown .strategy button").isDisabled(), true);
  assert.equal(await other.locator("#breakdown [aria-label=Unpin], #breakdown button:has-text('Compact')").count(), 0);
  world().undo();
  await other.waitForSelector("#log .compaction.undone");
  assert.deepEqual(faults, []);
  await other.close();
});

onPage("on a phone the dialog fits", { viewport: { width: 360, height: 640 } }, async ({ page }) => {
  await talk(page, ["one", "two"]);
  await say(page, "/preview mind the names");
  assert.equal(await page.inputValue("#compact-about"), "mind the names");
  await page.click("dialog button:has-text('Preview')");
  await page.waitForSelector("dialog .difference");
  const box = await page.locator("dialog").boundingBox();
  assert.ok(box.x >= 0 && box.x + box.width <= 360 && box.y + box.height <= 640);
  const apply = await page.locator("dialog button:has-text('Apply')").boundingBox();
  assert.ok(apply.y + apply.height <= 640, "the buttons are in reach");
  assert.equal(await page.evaluate(() => document.querySelector("dialog").scrollWidth > document.querySelector("dialog").clientWidth), false);
  await page.locator("dialog button:has-text('Apply')").click();
  await page.waitForSelector("#log .compaction");
});
