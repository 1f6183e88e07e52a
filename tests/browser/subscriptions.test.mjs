/**
 * The page and its sessions on one connection: which frames belong to the displayed session, and what ends a
 * subscription.
 */

import assert from "node:assert/strict";
import { conversation, say, settled } from "./browser.mjs";
import { mockPages } from "./mock-page.mjs";
import { act } from "./steps.mjs";

/** Console messages of the browser while a server is down; tests of that expect them. */
const AWAY = /WebSocket connection to|net::ERR_CONNECTION_REFUSED/;

const onPage = mockPages();

/** Sends a frame to every connection, subscribed or not. */
function sendToAll(server, frame) {
  for (const client of server.ws.clients) client.send(JSON.stringify(frame));
}

/** Returns the only session of a server. */
function only(server) {
  const [world, ...more] = server.worlds.values();
  assert.deepEqual(more, []);
  return world;
}

onPage("frames of another session change nothing", {}, async ({ page, server }) => {
  await say(page, "hello");
  await settled(page, 1);
  const world = only(server);
  const shown = await conversation(page);
  const title = await page.innerText("#title");
  const sessionId = "another0001";
  const entry = { entryId: "foreign1", parentId: world.leafId, timestamp: new Date().toISOString(), type: "message", role: "user", content: [{ type: "text", text: "from elsewhere" }] };
  const events = [
    // One in place of the next event, and one after a gap.
    { seq: world.seq + 1, type: "entry_appended", payload: { entry } },
    { seq: world.seq + 40, type: "session_updated", payload: { name: "elsewhere", leafId: "root" } },
    { seq: 1, type: "turn_started", payload: { turnId: "foreign2", commandIds: [], generation: 1 } },
    { type: "item_started", payload: { itemId: "foreign3", turnId: "foreign2", kind: "message" } },
    { type: "item_delta", payload: { itemId: "foreign3", part: 0, offset: 0, text: "from elsewhere" } },
    { type: "presence_changed", payload: { connection: { connectionId: "foreign4", role: "writer" } } },
    { type: "session_closed", payload: { code: "failed", message: "failed", retriable: true } },
    { type: "session_closed", payload: { code: "deleted", message: "deleted", retriable: false } },
  ];
  for (const event of events) sendToAll(server, { sessionId, ...event });
  // An unexpected reply and an error about the connection change nothing either.
  sendToAll(server, { re: "nobody-waits-for-this", sessionId: world.sessionId, type: "accepted", payload: { queued: true, asOfSeq: 99 } });
  sendToAll(server, { type: "error", payload: { code: "invalid_frame", message: "nobody's", retriable: false } });
  await say(page, "again");
  await settled(page, 2);
  const after = await conversation(page);
  assert.deepEqual([after.length, after.slice(0, 2)], [4, shown]);
  assert.equal(await page.innerText("#title"), title);
  assert.equal(await page.locator(".toast").count(), 0);
  assert.equal(await page.locator("#presence").isHidden(), true);
  assert.equal(server.connections, 1);
});

onPage("events of a session no longer displayed are ignored", { wordMillis: 1 }, async ({ page, server }) => {
  await say(page, "a long one, held");
  await page.waitForFunction(() => /Sentence 3/.test(document.querySelector("#tail")?.innerText));
  const left = only(server);
  await page.click("#new-session");
  await page.waitForSelector("#welcome:not([hidden])");
  await say(page, "hello");
  await settled(page, 1);
  const shown = await conversation(page);
  const [subscribed] = server.subscriptions.values();
  while (subscribed.has(left.sessionId)) await page.waitForTimeout(20);
  // An event that was in flight when the chat was left.
  sendToAll(server, { ...left.log.at(-1), seq: left.seq + 1 });
  server.release();
  await page.waitForFunction(() => document.querySelectorAll("#sessions .session").length === 2);
  await say(page, "and again");
  await settled(page, 2);
  assert.deepEqual((await conversation(page)).slice(0, 2), shown);
  await page.evaluate((id) => (location.hash = `#session=${id}`), left.sessionId);
  await page.waitForFunction(() => /Sentence 120/.test(document.querySelector("#log")?.innerText));
  await settled(page, 1);
  assert.equal(server.connections, 1);
});

onPage("a session deleted elsewhere ends here, and the connection stays", {}, async ({ page, server }) => {
  await say(page, "hello");
  await settled(page, 1);
  const deleted = only(server);
  server.worlds.delete(deleted.sessionId);
  server.end(deleted.sessionId, "deleted");
  await page.waitForSelector(".toast:has-text('This chat was deleted')");
  await page.waitForSelector("#welcome:not([hidden])");
  assert.equal(await page.evaluate(() => location.hash), "");
  await say(page, "another one");
  await settled(page, 1);
  assert.notEqual(only(server), deleted);
  assert.equal(server.connections, 1);
});

onPage("a failed session is reopened where the view was", { wordMillis: 12 }, async ({ page, server }) => {
  await say(page, "a long one, held");
  await page.waitForFunction(() => /Sentence 3/.test(document.querySelector("#tail")?.innerText));
  const world = only(server);
  const resumes = [];
  const open = server.on_open_session;
  server.on_open_session = (asked) => {
    resumes.push(asked.payload.resume ?? null);
    open.call(server, asked);
  };
  server.end(world.sessionId, "failed");
  // An input written while the session is not open waits until it is.
  await say(page, "and then");
  await page.waitForFunction(() => document.querySelector("#tail .waiting"));
  while (resumes.length === 0) await page.waitForTimeout(20);
  assert.equal(resumes.length, 1);
  assert.equal(resumes[0].epoch, world.epoch);
  assert.ok(resumes[0].items[0].offset > 0);
  server.release();
  await settled(page, 2);
  const live = await conversation(page);
  assert.match(live[1], /Sentence 1 of .* Sentence 120 of a long answer\./s);
  assert.equal(live.length, 4);
  // If it fails a second time at once, it reopens after a delay, with a full snapshot.
  server.end(world.sessionId, "failed");
  server.end(world.sessionId, "failed");
  await say(page, "once more");
  await settled(page, 3);
  assert.equal(await page.locator(".toast").count(), 0);
  assert.equal(server.connections, 1);
});

onPage("a session that keeps failing is not reopened endlessly", {}, async ({ page, server }) => {
  await say(page, "hello");
  await settled(page, 1);
  const { sessionId } = only(server);
  const asked = [];
  const open = server.on_open_session;
  server.on_open_session = (command) => {
    asked.push({ at: Date.now(), resumes: "resume" in command.payload });
    open.call(server, command);
    if (asked.length < 3) server.end(sessionId, "failed");
  };
  server.end(sessionId, "failed");
  while (asked.length < 3) await page.waitForTimeout(50);
  await say(page, "is anybody there");
  await settled(page, 2);
  assert.deepEqual(asked.map(({ resumes }) => resumes), [true, false, false]);
  assert.ok(asked[2].at - asked[0].at >= 5000, "it waits between them");
  assert.deepEqual((await conversation(page)).length, 4);
});

onPage("a resume that cannot be read is replaced by a snapshot", {}, async ({ page, server }) => {
  await say(page, "hello");
  await settled(page, 1);
  const { sessionId } = only(server);
  const resumes = [];
  const open = server.on_open_session;
  server.on_open_session = (command) => {
    resumes.push("resume" in command.payload);
    open.call(server, command);
  };
  const [subscribed] = server.subscriptions.values();
  subscribed.delete(sessionId);
  sendToAll(server, { sessionId, type: "session_closed", payload: { code: "failed", message: "record 3 is damaged", retriable: false } });
  await say(page, "again");
  await settled(page, 2);
  assert.deepEqual(resumes, [false]);
});

onPage("a session whose creation got no reply is created once", { wordMillis: 1, expected: AWAY }, async ({ page, server }) => {
  server.losesReplyTo = "open_session";
  await say(page, "hello");
  await settled(page, 1);
  assert.deepEqual((await conversation(page)).length, 2);
  assert.deepEqual([server.created.size, server.connections], [1, 2]);
  assert.equal(only(server).entries.length, 2);
});

onPage("a first input written while the server is down creates its session once it is back", { expected: AWAY }, async ({ page, server }) => {
  await page.waitForFunction(() => document.querySelectorAll("#sessions .session").length === 0 && document.querySelector("#connection-line").hidden);
  server.goAway();
  await page.waitForSelector("#connection-line:not([hidden])");
  await say(page, "written while away");
  server.comeBack();
  await settled(page, 1);
  assert.equal(only(server).entries.length, 2);
  assert.match((await conversation(page))[0], /written while away/);
});

onPage("an input written in a chat stays in that chat, even while another one is displayed", { expected: AWAY }, async ({ page, server }) => {
  for (const text of ["apples", "pears"]) {
    await page.click("#new-session");
    await say(page, text);
    await settled(page, 1);
  }
  const [apples, pears] = server.worlds.values();
  // The input arrives, its reply does not: it is resent on a connection that shows the other chat.
  server.losesReplyTo = "user_input";
  await say(page, "more pears");
  await page.waitForFunction(() => !document.querySelector("#connection-line").hidden || document.querySelectorAll("#log .assistant").length === 2);
  await page.evaluate((id) => (location.hash = `#session=${id}`), apples.sessionId);
  await page.waitForFunction(() => document.querySelector("#log .user")?.innerText.includes("apples"));
  // The answer continues while another chat is displayed; one more message would be the input, sent twice.
  await page.evaluate((id) => (location.hash = `#session=${id}`), pears.sessionId);
  await settled(page, 2);
  assert.equal(apples.entries.length, 2);
  assert.equal(pears.entries.length, 4);
});

onPage("an input written right after choosing another chat belongs to that chat", {}, async ({ page }) => {
  await say(page, "apples");
  await settled(page, 1);
  // Everything happens before the next frame is drawn, as on a busy machine.
  const write = (chosen, text) => page.evaluate(async ({ chosen, text }) => {
    const input = document.querySelector("#input");
    document.querySelector(chosen).click();
    input.value += text;
    input.dispatchEvent(new Event("input"));
    await new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)));
    return input.value;
  }, { chosen, text });
  assert.equal(await write("#new-session", "pears"), "pears");
  assert.equal(await write("#sessions .session a", "more"), "more");
  await page.waitForFunction(() => document.querySelector("#log .user")?.innerText.includes("apples"));
  assert.equal(await write("#new-session", " and plums"), "pears and plums");
});

onPage("an edited question goes to its chat, even if another one is displayed while the branch is summarised", {}, async ({ page, server }) => {
  for (const text of ["apples", "pears"]) {
    await page.click("#new-session");
    await say(page, text);
    await settled(page, 1);
  }
  const [apples, pears] = server.worlds.values();
  server.holdSteps();
  const row = page.locator("#log .message.user");
  await act(row, "Edit and ask again");
  await row.locator(".editor textarea").fill("plums");
  await row.locator(".editor [name=summarize]").check();
  await row.locator(".editor .primary").click();
  await page.waitForSelector("[data-running=compaction]");
  await page.evaluate((id) => (location.hash = `#session=${id}`), apples.sessionId);
  await page.waitForFunction(() => document.querySelector("#log .user")?.innerText.includes("apples"));
  server.release();
  await page.evaluate((id) => (location.hash = `#session=${id}`), pears.sessionId);
  await page.waitForFunction(() => document.querySelector("#log .user")?.innerText.includes("plums"));
  await settled(page, 1);
  assert.equal(apples.tree.size, 2);
});

onPage("a temporarily refused session says why, and is shown once it opens", {}, async ({ page, server }) => {
  await say(page, "hello");
  await settled(page, 1);
  let asked = 0;
  const open = server.on_open_session;
  server.on_open_session = (command) => {
    asked += 1;
    if (asked === 1) command.refuse("overloaded", "too much to do", true);
    else open.call(server, command);
  };
  await page.reload();
  await page.waitForSelector(".toast.error:has-text('The server is busy')");
  await settled(page, 1);
  assert.deepEqual([asked, await page.locator(".toast").count()], [2, 1]);
});
