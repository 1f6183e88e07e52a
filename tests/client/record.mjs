/**
 * Records the vectors of `protocol/client/vectors/` from the real server: `node record.mjs [NAME...]`. The server's
 * binary is RESEED_BIN, or else the debug build. Review the diff before committing it.
 */

import { writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { SCENARIOS } from "./scenarios.mjs";
import { World } from "./world.mjs";

const FOLDER = fileURLToPath(new URL("../../protocol/client/vectors/", import.meta.url));
/** Connections that observe the session meanwhile. */
const WITNESSES = 2;
/**
 * Frames that no fold reads: those for the host, of which hook frames hold whole requests, and the presence of the
 * witness, who joins and leaves with every look.
 */
const LEFT_OUT = new Set(["hook_call", "hook_cancelled", "presence_changed"]);

async function record(name, { about, settings, options, run }) {
  const world = await World.start(settings);
  try {
    const session = await world.client.createSession({ entries: 1000, ...options });
    const looks = await Looks.begin(world, session.id);
    await run(session, world.client);
    const end = await world.settled(session);
    const moments = (await looks.end()).filter(({ asOfSeq }) => asOfSeq < end.asOfSeq);
    const frames = world.frames.filter((frame) => frame.sessionId === session.id && !LEFT_OUT.has(frame.type));
    const [{ payload: opened }, ...events] = frames.filter(
      (frame) => frame.type === "session_opened" || frame.re === undefined,
    );
    const vector = { about, opened, steps: steps(events, moments, end) };
    writeFileSync(`${FOLDER}${name}.json`, printed(shortened(vector)));
    const durable = events.filter((frame) => frame.seq !== undefined).length;
    console.log(`${name}: ${events.length} frames, ${durable} of them durable, compared at ${vector.steps.length}`);
  } finally {
    await world.end();
  }
}

/**
 * Requests fresh snapshots without pause, several at a time, so that the server has one to answer after nearly every
 * append. There is no moment between the events of one append.
 */
class Looks {
  #bySeq = new Map();
  #ended = false;

  static async begin(world, sessionId) {
    const looks = new Looks();
    const witnesses = await Promise.all(Array.from({ length: WITNESSES }, () => world.anotherWitness()));
    looks.running = witnesses.map((witness) => looks.#look(witness, sessionId));
    return looks;
  }

  async #look(witness, sessionId) {
    while (!this.#ended) {
      const opened = await witness.look(sessionId);
      this.#bySeq.set(opened.asOfSeq, opened);
    }
    witness.close();
  }

  /** Returns the snapshots in the order of the events. */
  async end() {
    this.#ended = true;
    await Promise.all(this.running);
    return [...this.#bySeq.values()].sort((one, other) => one.asOfSeq - other.asOfSeq);
  }
}

function steps(events, moments, end) {
  const steps = [];
  let rest = events;
  for (const expected of moments) {
    const place = rest.findIndex((frame) => frame.seq === expected.asOfSeq) + 1;
    if (place === 0) continue;
    steps.push({ settled: false, frames: rest.slice(0, place), expected });
    rest = rest.slice(place);
  }
  return [...steps, { settled: true, unknown: unknown(events), frames: rest, expected: end }];
}

/** Returns the state that no event carries: the context size, if something has changed it since it was last sent. */
function unknown(events) {
  const types = events.filter((frame) => frame.seq !== undefined).map((frame) => frame.type);
  const told = Math.max(types.lastIndexOf("turn_finished"), types.lastIndexOf("compaction_undone"));
  return told < types.length - 1 ? ["contextInfo"] : [];
}

/**
 * Replaces entries in `expected` that the file already contains by their ids: there is an `expected` for nearly every
 * durable event, and each has the whole path.
 */
function shortened({ about, opened, steps }) {
  const given = new Map();
  const give = (entry) => given.set(entry.entryId, JSON.stringify(entry));
  opened.entries.forEach(give);
  return {
    about,
    opened,
    steps: steps.map((step) => {
      for (const { type, payload } of step.frames) if (type === "entry_appended") give(payload.entry);
      const entries = step.expected.entries.map((entry) =>
        given.get(entry.entryId) === JSON.stringify(entry) ? entry.entryId : entry,
      );
      step.expected.entries.forEach(give);
      return { ...step, expected: { ...step.expected, entries } };
    }),
  };
}

/** Formats JSON with one frame per line. */
export function printed({ about, opened, steps }) {
  const line = JSON.stringify;
  const list = (items) => items.map((item) => `\n        ${line(item)}`).join(",");
  const fields = ({ settled, unknown = [], opened: resumed, frames, expected }) => [
    `"settled": ${settled}`,
    ...(unknown.length > 0 ? [`"unknown": ${line(unknown)}`] : []),
    ...(resumed ? [`"opened": ${line(resumed)}`] : []),
    `"frames": [${list(frames)}\n      ]`,
    `"expected": ${line(expected)}`,
  ];
  const step = (one) => `    {\n      ${fields(one).join(",\n      ")}\n    }`;
  return `{
  "about": ${line(about)},
  "opened": ${line(opened)},
  "steps": [
${steps.map(step).join(",\n")}
  ]
}
`;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const names = process.argv.length > 2 ? process.argv.slice(2) : Object.keys(SCENARIOS);
  for (const name of names) await record(name, SCENARIOS[name]);
}
