/** Simulated users: chats of several turns with everything that people do, with pauses for thought between. */

import { CommandError, connect, ConnectionLost, SessionEnded, tool } from "reseed-client";
import { WebSocket } from "ws";
import { seeded } from "../seeded.mjs";
import { words } from "./model.mjs";
import { tokenOf } from "./servers.mjs";

/** Simulated seconds that pass in a real one. */
export const SPEED = 12;
/** Simulated seconds that a user thinks before the next input, and before the next chat, on average. */
const THINK_SECS = 40;
const AWAY_SECS = 240;
/** One user in so many has a small budget, and one in so many uses the HTTP API. */
export const LIMITED = 10;
const THROUGH_DOORS = 7;

/** What a user does with a turn, with its share. The rest are plain questions. */
const ACTIONS = [
  ["look", 0.12],
  ["cancel", 0.06],
  ["regenerate", 0.08],
  ["model", 0.06],
  ["compact", 0.05],
  ["preview", 0.04],
  ["branch", 0.04],
];

const REAL = { now: () => Date.now(), origin: null, warn: () => undefined, onWake: () => () => undefined };

/** Returns the owner's name of a user. */
export const ownerOf = (number) => `u${String(number).padStart(3, "0")}`;
export const isLimited = (owner) => Number(owner.slice(1)) % LIMITED === 0;

/** One user. */
export class User {
  #chats = 0;

  /**
   * @param {number} number @param {object} world what all users share: `servers`, `seed`, `until`, `sessions`,
   * `told`, `count`
   */
  constructor(number, world) {
    this.world = world;
    this.owner = ownerOf(number);
    this.random = seeded(world.seed * 1_000 + number);
    this.usesDoors = number % THROUGH_DOORS === 3;
  }

  /** Comes and goes until the hour is over. */
  async live() {
    await this.#pause(AWAY_SECS / 6);
    if (!this.usesDoors) this.#connect();
    try {
      while (this.#goesOn()) {
        await (this.usesDoors ? this.#doors() : this.#chat());
        await this.#pause(AWAY_SECS);
      }
    } catch (error) {
      throw new Error(`${this.owner} failed: ${error.code ?? error.name}: ${error.message}`, { cause: error });
    } finally {
      this.client?.close();
    }
  }

  #goesOn() {
    return Date.now() < this.world.until;
  }

  /** Waits for a random time with this mean in simulated seconds, but not longer than the hour. */
  async #pause(secs) {
    const ms = (-Math.log(1 - this.random()) * secs * 1_000) / SPEED;
    await this.world.sleep(Math.min(ms, this.world.until - Date.now()));
  }

  #connect() {
    const { servers } = this.world;
    const { random } = this;
    // As behind a load balancer: each connection goes to any server.
    class Balanced extends WebSocket {
      constructor(url, protocols) {
        super(new URL("/ws", servers.any(random).replace("http", "ws")), protocols);
      }
    }
    const after = (ms, then) => {
      const timer = setTimeout(then, ms);
      return () => clearTimeout(timer);
    };
    // The waits between attempts are short, as the hour is.
    const environment = { ...REAL, random: () => random() / SPEED, after };
    const options = { token: tokenOf(this.owner), WebSocket: Balanced, environment, clientId: `client-of-${this.owner}` };
    this.client = connect(servers.any(random), options);
    this.world.clients.push(this.client);
  }

  /** Does something that may be refused, or lost with a server. Returns undefined then. */
  async #attempt(act) {
    try {
      return await act();
    } catch (error) {
      const isRefused = error instanceof CommandError && !/^(internal|invalid|unknown)/.test(error.code);
      if (!isRefused && !(error instanceof ConnectionLost) && !(error instanceof SessionEnded)) throw error;
      this.world.count(`refused: ${error.code ?? error.name}`);
      return undefined;
    }
  }

  #tag() {
    this.#chats += 1;
    return `${this.owner}c${this.#chats}`;
  }

  async #chat() {
    const tag = this.#tag();
    const { world, random } = this;
    const look = tool({
      description: "Looks at a place.",
      parameters: { type: "object", properties: { place: { type: "string" } }, required: ["place"] },
      run: ({ place }) => `${place} ${words(random, 40)}`,
    });
    const session = await this.#attempt(() => this.client.createSession({ entries: 1000, tools: { look } }));
    if (!session) return;
    world.count("sessions");
    world.sessions.set(tag, session.id);
    const end = session.onEvent((event) => world.hear(event));
    for (let turns = 2 + Math.floor(random() * 9); turns > 0 && this.#goesOn(); turns -= 1) {
      await this.#turn(session, tag);
      await this.#pause(THINK_SECS);
    }
    if (random() < 0.25 && (await this.#attempt(() => session.delete()))) world.deleted.push(session.id);
    end();
    await this.#attempt(() => session.close());
  }

  async #turn(session, tag) {
    const { world, random } = this;
    let at = random();
    const action = ACTIONS.find(([, share]) => (at -= share) < 0)?.[0] ?? "ask";
    const text = (mark) => `${tag} ${mark} ${words(random, 20 + Math.floor(random() * 150))}`;
    world.count(action);
    if (action === "model") await this.#attempt(() => session.setModel(random() < 0.6 ? "anthropic/sage" : "swift"));
    if (action === "compact") await this.#attempt(() => session.startCompaction());
    if (action === "preview") {
      const preview = await this.#attempt(() => session.previewCompaction({ instructions: "PREVIEW" }));
      if (preview && random() < 0.5) {
        await this.#attempt(() => session.startCompaction({ previewId: preview.previewId }));
      }
    }
    if (action === "branch") {
      const first = session.snapshot?.path.entries.find((entry) => entry.role === "assistant");
      if (first) {
        const options = { summarize: true, instructions: "BRANCH" };
        await this.#attempt(() => session.navigate(first.entryId, options));
      }
    }
    const before = session.snapshot?.leafId ?? "root";
    const said = text(action === "look" ? "[look]" : action === "cancel" ? "[hold]" : "");
    const answer = session.send(said);
    if (action === "cancel") await this.#cancel(answer);
    const result = await this.#finished(answer);
    if (action === "regenerate" && result) await this.#finished(session.send(said, { parentId: before }));
    if (result?.status === "failed" && result.error.code !== "budget_exhausted" && action !== "cancel") {
      world.count("retried turns");
      await this.#finished(session.retryTurn());
    }
  }

  /** Stops an answer once something of it was shown. */
  async #cancel(answer) {
    await this.#attempt(async () => {
      for await (const piece of answer.text()) if (piece) break;
      await answer.cancel();
    }).catch((error) => {
      // A turn that failed before anything was shown cannot be read.
      if (!(error instanceof Error)) throw error;
      this.world.count("not cancelled");
    });
  }

  async #finished(answer) {
    const result = await this.#attempt(() => answer.finished());
    this.world.count(`turns ${result?.status ?? "lost"}`);
    if (result?.error) this.world.count(`failed: ${result.error.code}`);
    if (result?.error?.code === "budget_exhausted") this.world.exhausted(this.owner);
    return result;
  }

  /** A conversation through `/v1/responses` or `/v1/chat/completions`, of which the server keeps nothing. */
  async #doors() {
    const tag = this.#tag();
    const { world, random } = this;
    const messages = [];
    for (let turns = 1 + Math.floor(random() * 4); turns > 0 && this.#goesOn(); turns -= 1) {
      messages.push({ role: "user", content: `${tag} ${words(random, 20 + Math.floor(random() * 80))}` });
      const isChat = random() < 0.5;
      const path = isChat ? "/v1/chat/completions" : "/v1/responses";
      const body = isChat ? { messages } : { input: messages, store: false };
      const text = await this.#post(path, { model: random() < 0.3 ? "anthropic/sage" : "swift", ...body });
      world.count(text === undefined ? "requests failed" : "requests answered");
      if (text === undefined) messages.pop();
      else messages.push({ role: "assistant", content: text });
      await this.#pause(THINK_SECS);
    }
  }

  /** Returns the text of the answer; undefined if it failed or was lost with its server. */
  async #post(path, body) {
    const authorization = `Bearer ${tokenOf(this.owner)}`;
    const headers = { authorization, "content-type": "application/json", "x-reseed-store": "none" };
    try {
      const url = new URL(path, this.world.servers.any(this.random));
      const answered = await fetch(url, { method: "POST", headers, body: JSON.stringify(body) });
      const json = await answered.json();
      if (!answered.ok || json.error) {
        this.world.count(`door: ${answered.status} ${json.error?.code}`);
        if (json.error?.code === "budget_exhausted") this.world.exhausted(this.owner);
        return undefined;
      }
      const text = json.choices?.[0].message.content ?? json.output.flatMap((item) => item.content ?? []).map((part) => part.text).join("");
      return text || undefined;
    } catch (error) {
      if (!(error instanceof TypeError)) throw error;
      return undefined;
    }
  }
}

