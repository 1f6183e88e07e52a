/** The fold against the real server: the result of events equals a fresh `session_opened`. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { fromOpened } from "reseed-client";
import { SCENARIOS } from "./scenarios.mjs";
import { comparable, play, Samples, World } from "./world.mjs";

for (const [name, { about, settings, options, run }] of Object.entries(SCENARIOS)) {
  test(`${name}: ${about}`, async () => {
    const world = await World.start(settings);
    try {
      const session = await world.client.createSession({ entries: 1000, ...options });
      const samples = new Samples(world, session);
      await run(session, world.client);
      const opened = await world.settled(session);
      await samples.done();

      let compared = 0;
      play(world.frames, session.id, (snapshot, frame) => {
        const truth = frame.seq === undefined ? undefined : samples.bySeq.get(frame.seq);
        if (!truth) return;
        compared += 1;
        assert.deepEqual(comparable(snapshot, false), comparable(fromOpened(truth), false), `after event ${frame.seq}`);
      });
      assert.ok(compared > 2, `${compared} moments were compared`);
      assert.deepEqual(comparable(session.snapshot, true), comparable(fromOpened(opened), true), "at the end");
    } finally {
      await world.end();
    }
  });
}

test("alternatives are found at one place whatever separates them, and a branch is entered where it was left", async () => {
  const world = await World.start({});
  try {
    const session = await world.client.createSession();
    const ask = async (text, options) => (await session.send(text, options).finished()).entries;
    await ask("My cat is called Miso.");
    const first = session.snapshot.path.entries[0];
    const answer = session.snapshot.leafId;
    await ask("What is my cat called?");
    const one = session.snapshot.path.entries.at(-2);
    const { entryId: left } = await session.setLabel(one.entryId, "asked");
    await session.navigate(answer);
    await session.setLabel(answer, "a quiet entry between");
    await ask("And my dog?");
    const two = session.snapshot.path.entries.findLast((entry) => entry.role === "user");
    await ask("A new beginning.", { parentId: "root" });
    const ids = async (of) => (await session.siblings(of.entryId)).map((node) => node.entryId);
    assert.deepEqual(await ids(one), [one.entryId, two.entryId]);
    assert.deepEqual(await ids(two), [one.entryId, two.entryId]);
    assert.deepEqual(await ids(first), [first.entryId, session.snapshot.path.entries[0].entryId]);
    assert.equal((await session.switchTo(one.entryId)).leafId, left);
    const picture = { type: "image", url: "data:image/png;base64,AA==" };
    const content = [{ type: "text", text: "Look." }, picture];
    await session.send([{ role: "user", content }]).finished();
    const said = session.snapshot.path.entries.findLast((entry) => entry.role === "user");
    assert.deepEqual(said.content, content);
    await session.send([{ role: "user", content: said.content }]).finished();
    assert.deepEqual(session.snapshot.path.entries.findLast((entry) => entry.role === "user").content, content);
    await assert.rejects(session.siblings("nosuchentry12345"));
  } finally {
    await world.end();
  }
});
