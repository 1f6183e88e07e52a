/**
 * Records the vectors of `protocol/client/vectors/` from the real server: `node record.mjs [NAME...]`. The server's
 * binary is RESEED_BIN, or else the debug build. Read the difference before you commit it.
 */

import { writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { SCENARIOS } from "./scenarios.mjs";
import { Samples, World } from "./world.mjs";

const FOLDER = fileURLToPath(new URL("../../protocol/client/vectors/", import.meta.url));
/** Moments of a story that are kept beside its end; each has the whole snapshot. */
const MOMENTS_MAX = 5;
/** Frames for the host that no fold reads; those of hooks hold whole requests. */
const LEFT_OUT = new Set(["hook_call", "hook_cancelled"]);

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const names = process.argv.length > 2 ? process.argv.slice(2) : Object.keys(SCENARIOS);
  for (const name of names) await record(name, SCENARIOS[name]);
}

async function record(name, { about, settings, options, run }) {
  const world = await World.start(settings);
  try {
    const session = await world.client.createSession({ entries: 1000, ...options });
    const samples = new Samples(world, session);
    await run(session, world.client);
    const end = await world.settled(session);
    await samples.done();
    samples.bySeq.delete(end.asOfSeq);
    const frames = world.frames.filter((frame) => frame.sessionId === session.id && !LEFT_OUT.has(frame.type));
    const [{ payload: opened }, ...events] = frames.filter(
      (frame) => frame.type === "session_opened" || frame.re === undefined,
    );
    writeFileSync(
      `${FOLDER}${name}.json`,
      printed({ about, opened, steps: steps(events, chosen(samples.bySeq), end) }),
    );
    console.log(`${name}: ${events.length} frames`);
  } finally {
    await world.end();
  }
}

/** A few of the moments at which the server was asked, evenly spread. */
function chosen(bySeq) {
  const all = [...bySeq.values()].sort((one, other) => one.asOfSeq - other.asOfSeq);
  return all.filter((_, index) => index % Math.ceil(all.length / MOMENTS_MAX) === 0);
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

/** Returns the state that no event carries: the size of the context, if something has changed it since it was sent. */
function unknown(events) {
  const types = events.filter((frame) => frame.seq !== undefined).map((frame) => frame.type);
  const told = Math.max(types.lastIndexOf("turn_finished"), types.lastIndexOf("compaction_undone"));
  return told < types.length - 1 ? ["contextInfo"] : [];
}

/** JSON with one frame a line. */
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
