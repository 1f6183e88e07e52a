/**
 * A real server, a client on it whose frames are recorded, and a witness: a bare connection that asks the server for
 * the true state.
 */

import { WebSocket } from "ws";
import { connect, fold, fromOpened, reopened } from "reseed-client";
import { Server } from "../browser/server.mjs";

/** Maximum milliseconds for anything on a busy machine; only a failing test reaches it. */
const PATIENCE_MS = 60_000;

/** Fields of a snapshot that only durable events decide, so that they are known at every moment. */
const DURABLE = [
  "sessionId",
  "epoch",
  "seq",
  "asOfSeq",
  "leafId",
  "name",
  "model",
  "strategy",
  "settings",
  "generation",
  "lastTurn",
  "unansweredTurns",
  "failedCompactions",
  "queue",
  "pins",
  "approvals",
  "standingApprovals",
  "undone",
];

/** Fields that ephemeral events decide: they are only compared when nothing is in flight. */
const SETTLED = ["held", "state", "contextInfo", "warning"];

/** Returns what two snapshots must have in common; `settled` if nothing is in flight. */
export function comparable(snapshot, settled, unknown = []) {
  const fields = settled ? [...DURABLE, ...SETTLED] : DURABLE;
  // The warning is part of the context size.
  const left = new Set([...unknown, ...(unknown.includes("contextInfo") ? ["warning"] : [])]);
  const chosen = fields.filter((field) => !left.has(field)).map((field) => [field, snapshot[field]]);
  return JSON.parse(
    JSON.stringify({
      ...Object.fromEntries(chosen),
      turn: snapshot.turn?.turnId ?? null,
      path: snapshot.path.entries,
      more: snapshot.path.more,
      // Void answers are shown for a while, but no server snapshot has them.
      ...(settled ? { items: snapshot.items.filter((item) => !item.aborted), compaction: running(snapshot) } : {}),
      // A call's deadline moves by an event that is not stored.
      pending: snapshot.pending.map(({ toolCallId, turnId, name, arguments: args, deadline }) => ({
        toolCallId,
        turnId,
        name,
        args,
        ...(settled ? { deadline } : {}),
      })),
    }),
  );
}

/** Returns what a server snapshot says about the running compaction: neither its trigger nor its progress. */
function running({ compaction }) {
  return compaction && { jobId: compaction.jobId, phase: compaction.phase, background: compaction.background ?? false };
}

/** Waits until a condition holds, checking after every change. */
export async function until(subscribe, condition, what) {
  if (condition()) return;
  await new Promise((resolve, reject) => {
    const limit = setTimeout(() => reject(new Error(`timed out waiting until ${what}`)), PATIENCE_MS);
    const end = subscribe(() => {
      if (!condition()) return;
      clearTimeout(limit);
      end();
      resolve();
    });
  });
}

/** A bare connection that opens sessions afresh. */
export class Witness {
  #socket;
  #replies = new Map();
  #next = 0;
  #looked = Promise.resolve();

  static async on(url) {
    const witness = new Witness();
    witness.#socket = new WebSocket(new URL("/ws", url.replace(/^http/, "ws")), "reseed.v2");
    await new Promise((resolve, reject) => {
      witness.#socket.onopen = resolve;
      witness.#socket.onerror = reject;
    });
    witness.#socket.onmessage = ({ data }) => {
      const frame = JSON.parse(data);
      witness.#replies.get(frame.re)?.(frame);
      witness.#replies.delete(frame.re);
    };
    await witness.ask("hello", { protocolVersion: 2 });
    return witness;
  }

  async ask(type, payload, sessionId) {
    const id = `witness-${(this.#next += 1)}`;
    const reply = new Promise((resolve) => this.#replies.set(id, resolve));
    this.#socket.send(JSON.stringify({ id, ...(sessionId ? { sessionId } : {}), type, payload }));
    const frame = await reply;
    if (frame.type === "error") throw new Error(`${type}: ${frame.payload.message}`);
    return frame.payload;
  }

  /** Returns the payload of a fresh `session_opened`, with the whole path. */
  look(sessionId) {
    // One look at a time: a connection can only open a session once.
    this.#looked = this.#looked.then(() => this.#look(sessionId));
    return this.#looked;
  }

  async #look(sessionId) {
    const opened = await this.ask("open_session", { role: "observer", entries: 1000 }, sessionId);
    await this.ask("close_session", {}, sessionId);
    return opened;
  }

  close() {
    this.#socket.close();
  }
}

/** A server with a client whose frames are recorded. */
export class World {
  /** Frames of sessions in order of arrival, including `session_opened`. */
  frames = [];
  #clients = [];

  static async start(settings = {}, options = {}) {
    const world = new World();
    world.server = new Server(settings);
    await world.server.start();
    world.witness = await Witness.on(world.server.url);
    world.client = world.connect(options);
    return world;
  }

  /** Connects one more client; its reconnects take no time. */
  connect(options = {}) {
    const { frames } = this;
    class Tapped extends WebSocket {
      constructor(url, protocols) {
        super(url, protocols);
        this.on("message", (data) => {
          if (this.readyState === WebSocket.OPEN) frames.push(JSON.parse(data));
        });
      }
    }
    const environment = {
      now: () => Date.now(),
      random: () => 0,
      after(ms, then) {
        const timer = setTimeout(then, ms);
        return () => clearTimeout(timer);
      },
      onWake: () => () => undefined,
    };
    const client = connect(this.server.url, { WebSocket: Tapped, environment, clientId: "recorded", ...options });
    this.#clients.push(client);
    return client;
  }

  /** Creates a witness on the current server. */
  anotherWitness() {
    return Witness.on(this.server.url);
  }

  /** Waits until nothing is in flight in a session: no turn, and no compaction in the background of an idle one. */
  async settled(session) {
    const idle = () => {
      const { status, snapshot } = session;
      const busy = snapshot.turn || snapshot.compaction || snapshot.queue.length > 0;
      return status.phase === "open" && snapshot.state === "idle" && !busy;
    };
    await until(session.subscribe, idle, "the session is idle");
    const opened = await this.witness.look(session.id);
    await until(session.subscribe, () => session.snapshot.seq >= opened.asOfSeq, "every event has come");
    // A compaction may begin between the two views. Events that have no `seq` have arrived when this reply has.
    await session.getContextInfo();
    const still = session.snapshot.seq === opened.asOfSeq && !opened.compaction && idle();
    return still ? opened : this.settled(session);
  }

  async end() {
    // A client left open by a failing test would search for its server indefinitely.
    for (const client of this.#clients) client.close();
    this.witness.close();
    await this.server.remove();
  }
}

/** Watches a session: asks the witness after every durable event, and stores its response by `seq`. */
export class Samples {
  bySeq = new Map();
  #looking = null;
  #again = false;

  constructor(world, session) {
    this.world = world;
    this.session = session;
    this.end = session.onEvent((event) => {
      if (event.seq !== undefined) this.look();
    });
  }

  look() {
    if (this.#looking) this.#again = true;
    else this.#looking = this.#look();
  }

  async #look() {
    do {
      this.#again = false;
      const opened = await this.world.witness.look(this.session.id);
      this.bySeq.set(opened.asOfSeq, opened);
    } while (this.#again);
    this.#looking = null;
  }

  /** Waits for the last look. */
  async done() {
    this.end();
    await this.#looking;
  }
}

/** Plays recorded frames through the fold. `check` gets the snapshot after each frame. */
export function play(frames, sessionId, check) {
  let snapshot = null;
  for (const frame of frames) {
    if (frame.sessionId !== sessionId) continue;
    if (frame.type === "session_opened")
      snapshot = snapshot ? reopened(snapshot, frame.payload) : fromOpened(frame.payload);
    else if (snapshot && frame.re === undefined && frame.type !== "error") {
      const next = fold(snapshot, frame);
      if (next === "gap") throw new Error(`a gap before event ${frame.seq}, after ${snapshot.seq}`);
      snapshot = next;
    }
    if (snapshot) check(snapshot, frame);
  }
  return snapshot;
}
