/** The fold against the real server: what events lead to equals what a fresh `session_opened` says. */

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
      await session.getContextInfo();
      assert.deepEqual(comparable(session.snapshot, true), comparable(fromOpened(opened), true), "at the end");
    } finally {
      await world.end();
    }
  });
}
