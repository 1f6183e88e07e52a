/** The vectors shared by the clients of all languages: `protocol/client/vectors/README.md` says how to read them. */

import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { test } from "node:test";
import { fold, fromOpened, reopened, resumePoint } from "reseed-client";
import { comparable } from "./world.mjs";

const FOLDER = new URL("../../protocol/client/vectors/", import.meta.url);
const FILES = readdirSync(FOLDER).filter((file) => file.endsWith(".json"));

/** Applies the frames, and checks that none of them mutates the previous snapshot. */
function folded(start, frames) {
  return frames.reduce((snapshot, frame) => {
    const before = JSON.stringify(snapshot.items);
    const next = fold(snapshot, frame);
    assert.notEqual(next, "gap", JSON.stringify(frame));
    assert.equal(JSON.stringify(snapshot.items), before, "the snapshot before is as it was");
    return next;
  }, start);
}

/** Returns a function that replaces ids in `expected` by the entries that the file contained earlier. */
function entriesGiven(opened) {
  const given = new Map();
  const give = (entry) => given.set(entry.entryId, entry);
  opened.entries.forEach(give);
  return ({ opened: resumed, frames, expected }) => {
    resumed?.entries?.forEach(give);
    for (const { type, payload } of frames) if (type === "entry_appended") give(payload.entry);
    const entries = expected.entries.map((entry) => {
      if (typeof entry !== "string") return entry;
      assert.ok(given.has(entry), `entry ${entry} is given before it is expected`);
      return given.get(entry);
    });
    entries.forEach(give);
    return { ...expected, entries };
  };
}

for (const file of FILES) {
  const { about, opened, steps } = JSON.parse(readFileSync(new URL(file, FOLDER), "utf8"));
  test(`${file}: ${about}`, () => {
    let snapshot = fromOpened(opened);
    const whole = entriesGiven(opened);
    steps.forEach((step, index) => {
      if (step.opened) snapshot = reopened(snapshot, step.opened);
      snapshot = folded(snapshot, step.frames);
      const expected = fromOpened(whole(step));
      const view = (state) => ({
        ...comparable(state, step.settled, step.unknown),
        ...(step.expected.presence && !isRecorded(step) ? { presence: state.presence, host: state.host } : {}),
      });
      assert.deepEqual(plain(view(snapshot)), plain(view(expected)), `step ${index + 1} of ${file}`);
    });
    assert.equal(resumePoint(snapshot).seq, snapshot.seq);
  });
}

/** In a recording, observers of the session join and leave too. */
function isRecorded({ expected }) {
  return expected.role === "observer";
}

function plain(value) {
  return JSON.parse(JSON.stringify(value));
}

test("an event that leaves a gap is reported, and a known event changes nothing", () => {
  const { opened } = JSON.parse(readFileSync(new URL("presence.json", FOLDER), "utf8"));
  const snapshot = fromOpened(opened);
  const event = (seq) => ({ sessionId: opened.sessionId, seq, type: "session_updated", payload: { name: "other" } });
  assert.equal(fold(snapshot, event(5)), "gap");
  assert.equal(fold(snapshot, event(3)), snapshot);
  assert.equal(fold(snapshot, event(4)).name, "other");
});
