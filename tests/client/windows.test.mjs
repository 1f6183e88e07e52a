/** Several windows of one user on the real server, and a killed server. */

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { fromOpened, tool } from "reseed-client";
import { comparable, until, World } from "./world.mjs";

const clock = (answer) =>
  tool({ description: "The time.", parameters: { type: "object", properties: {} }, run: () => answer });

let world;
before(async () => void (world = await World.start({ OFFLINE_WORD_MILLIS: "3" })));
after(() => world.end());

/** Waits for a condition on a session. */
const when = (session, condition, what) =>
  until(session.subscribe, () => session.snapshot !== null && condition(session.snapshot), what);

test("two windows see each other, and the inputs of both in one order", async () => {
  const other = world.connect({ clientId: "other", client: { name: "second", version: "2" } });
  const one = await world.client.createSession({ entries: 1000 });
  const two = other.session(one.id, { entries: 1000 });
  await two.opened();
  await when(one, ({ presence }) => presence.length === 2, "the second window is seen");
  const answers = [one, two].flatMap((session, window) =>
    [1, 2].map((time) => session.send(`Say exactly ${window}-${time}`)),
  );
  await Promise.all(answers.map((answer) => answer.finished()));
  const seq = Math.max(one.snapshot.seq, two.snapshot.seq);
  await Promise.all(
    [one, two].map((session) => when(session, (snapshot) => snapshot.seq >= seq, "both have everything")),
  );
  const ids = (session) => session.snapshot.path.entries.map((entry) => entry.entryId);
  assert.deepEqual(ids(one), ids(two));
  assert.equal(ids(one).length, 8);
  assert.deepEqual(one.snapshot.presence, two.snapshot.presence);
  assert.deepEqual(
    one.snapshot.presence.map(({ clientId, client, role }) => [clientId, client?.name, role]),
    [
      ["recorded", undefined, "writer"],
      ["other", "second", "writer"],
    ],
  );
  other.close();
  await when(one, ({ presence }) => presence.length === 1, "it is seen to go");
});

test("one window hosts, the other is on standby, takes over, and gives the role back", async () => {
  const other = world.connect({ clientId: "second-host" });
  const one = await world.client.createSession({ tools: { clock: clock("one o'clock") } });
  const two = other.session(one.id);
  await two.opened();
  assert.deepEqual([one.isHost, two.isHost], [true, false]);
  assert.equal((await two.host({ tools: { clock: clock("two o'clock") } })).standby, true);
  const ask = async () => {
    const { entries } = await one.send("Use clock").finished();
    return entries.find((entry) => entry.role === "tool").content[0].output;
  };
  assert.equal(await ask(), "one o'clock");
  await two.takeOverHost();
  await when(one, () => !one.isHost, "the first is told");
  await when(two, () => two.isHost, "the second is told");
  assert.equal(await ask(), "two o'clock");
  await two.close();
  await when(one, () => one.isHost, "the first hosts again");
  assert.equal(await ask(), "one o'clock");
  const third = world.connect({ clientId: "offers-nothing" });
  await assert.rejects(third.session(one.id).takeOverHost(), { code: "nothing_offered" });
  for (const client of [other, third]) client.close();
});

test("an observer sees everything, and may not write", async () => {
  const other = world.connect({ clientId: "observer" });
  const one = await world.client.createSession();
  const two = other.session(one.id, { role: "observer" });
  assert.equal((await two.opened()).role, "observer");
  await one.send("Say exactly hello").finished();
  await when(two, ({ path, turn }) => !turn && path.entries.length === 2, "the observer has it too");
  await assert.rejects(two.send("me too").finished(), { code: "read_only" });
  other.close();
});

test("a session that another window deletes ends here", async () => {
  const session = await world.client.createSession();
  await world.witness.ask("delete_session", {}, session.id);
  await until(session.subscribe, () => session.status.phase === "ended", "it has ended");
  assert.equal(session.status.code, "deleted");
  await assert.rejects(session.rename("x"), { name: "SessionEnded" });
});

test("the list follows every change", async () => {
  const end = world.client.sessions.subscribe(() => undefined);
  const session = await world.client.createSession();
  await session.rename("in the list");
  const named = () =>
    world.client.sessions.view.items.some(({ sessionId, name }) => sessionId === session.id && name === "in the list");
  await until(world.client.sessions.subscribe, named, "the name is there");
  await session.delete();
  await until(world.client.sessions.subscribe, () => !named(), "it is gone");
  end();
});

test("after the server is killed during an answer, the client reconnects and the turn can be retried", async () => {
  const own = await World.start({ OFFLINE_WORD_MILLIS: "8" });
  try {
    const session = await own.client.createSession({ entries: 1000 });
    await session.send("Say exactly before").finished();
    const answer = session.send("Write 400 words.");
    for await (const piece of answer) if (piece.type === "text") break;
    own.witness.close();
    await own.server.end("SIGKILL");
    await until(session.subscribe, () => session.status.phase !== "open", "the loss is seen");
    own.server.port = new URL(own.server.url).port;
    await own.server.start();
    assert.equal((await answer.finished()).status, "interrupted");
    own.witness = await own.anotherWitness();
    const opened = await own.settled(session);
    assert.deepEqual(
      comparable(session.snapshot, true, ["contextInfo"]),
      comparable(fromOpened(opened), true, ["contextInfo"]),
    );
    const again = session.retryTurn();
    await again.cancel();
    assert.equal((await again.finished()).status, "cancelled");
  } finally {
    await own.end();
  }
});
