/**
 * Randomly lost connections: nothing is lost, nothing is done twice, and what is shown equals a fresh snapshot from the
 * server.
 *
 *     CUTS=10000 node --test cuts.test.mjs    runs that many seeds; the default is 100
 *     SEED=72 node --test cuts.test.mjs       runs only that one
 */

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { fromOpened, tool } from "reseed-client";
import { WebSocket } from "ws";
import { seeded } from "./seeded.mjs";
import { comparable, World } from "./world.mjs";

const SEEDS = process.env.SEED
  ? [Number(process.env.SEED)]
  : Array.from({ length: Number(process.env.CUTS ?? 100) }, (_, seed) => seed + 1);
/** Seeds run concurrently on one server. */
const LANES = 4;
/** Maximum cuts per run, so that each run ends. */
const CUTS_MAX = 12;

/** Returns sockets that are randomly lost after a frame was sent or received. */
function lossy(random, counted) {
  const isCut = () => counted.cuts < CUTS_MAX && random() < 0.12 && (counted.cuts += 1) > 0;
  return class extends WebSocket {
    constructor(url, protocols) {
      super(url, protocols);
      this.on("message", () => void (isCut() && this.terminate()));
    }

    send(text) {
      const isBefore = isCut();
      if (!isBefore) super.send(text);
      if (isBefore || isCut()) this.terminate();
    }
  };
}

async function run(seed, world) {
  const random = seeded(seed);
  const counted = { cuts: 0 };
  const runs = new Map();
  const weather = tool({
    description: "The weather.",
    parameters: { type: "object", properties: { place: { type: "string" } }, required: ["place"] },
    run: (_, { toolCallId }) => {
      runs.set(toolCallId, (runs.get(toolCallId) ?? 0) + 1);
      return "rain";
    },
  });
  const client = world.connect({ WebSocket: lossy(random, counted), clientId: `seed-${seed}` });
  try {
    const session = await client.createSession({ entries: 1000, tools: { weather } });
    const said = ["Say exactly one", "Use weather place=harbour", "Count 1 to 30", "Say exactly 🐈 over there"];
    const answers = said.map((text) => ({ text, answer: session.send(text) }));
    await session.rename(`seed ${seed}`);
    let streamed = "";
    for await (const piece of answers[2].answer.text()) streamed += piece;
    const results = await Promise.all(answers.map(({ answer }) => answer.finished()));
    await session.setLabel(session.snapshot.path.entries[0].entryId, "first");

    // From here on nothing is cut, so the server's state is final.
    counted.cuts = CUTS_MAX;
    const opened = await world.settled(session);
    assert.deepEqual(
      comparable(session.snapshot, true, ["contextInfo"]),
      comparable(fromOpened(opened), true, ["contextInfo"]),
    );
    const { entries } = session.snapshot.path;
    const inputs = entries.filter((entry) => entry.role === "user").map((entry) => entry.content[0].text);
    assert.deepEqual(inputs, said, "every input is there once, in order");
    assert.deepEqual(
      results.map(({ status }) => status),
      said.map(() => "completed"),
    );
    assert.equal(streamed, results[2].text, "what was streamed is the answer");
    assert.equal(results[3].text, "🐈 over there");
    assert.equal(entries.filter((entry) => entry.type === "label").length, 1);
    assert.ok(
      [...runs.values()].every((times) => times === 1),
      "a tool runs once for each call",
    );
    assert.equal(runs.size, entries.filter((entry) => entry.role === "tool").length);
    await session.delete();
    return counted.cuts;
  } finally {
    client.close();
  }
}

let world;
before(async () => void (world = await World.start({ OFFLINE_WORD_MILLIS: "1" })));
after(() => world.end());

test(`${SEEDS.length} seeds of lost connections`, async () => {
  const left = [...SEEDS];
  const lane = async () => {
    for (let seed = left.shift(); seed !== undefined; seed = left.shift()) {
      try {
        await run(seed, world);
      } catch (error) {
        throw new Error(`failed with SEED=${seed}`, { cause: error });
      }
    }
  };
  await Promise.all(Array.from({ length: LANES }, lane));
});
