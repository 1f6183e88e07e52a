/**
 * Finds out whether the other end is still there. A browser does not show a WebSocket's pings to a page, so after a
 * silence the client asks by itself.
 */

import type { Environment } from "./environment.js";

/** Milliseconds that an answer may take. */
const ANSWER_MS = 10_000;

/** The dependencies of a heartbeat. */
export interface Watched {
  /** Sends something that the server answers. */
  probe(): void;
  /** Takes the end: nothing was heard although something was asked. */
  dead(): void;
}

/** Watches one connection. */
export class Heartbeat {
  readonly #environment: Environment;
  readonly #silenceMs: number;
  readonly #watched: Watched;
  #heardAt: number;
  #cancel: () => void = () => undefined;

  /** Begins to watch; `silenceMs` is the silence after which to ask. */
  constructor(environment: Environment, silenceMs: number, watched: Watched) {
    this.#environment = environment;
    this.#silenceMs = silenceMs;
    this.#watched = watched;
    this.#heardAt = environment.now();
    this.#listen(silenceMs);
  }

  /** Something was heard. Costs nothing: there is one on every frame. */
  heard(): void {
    this.#heardAt = this.#environment.now();
  }

  /** Asks now, because the network may have changed. */
  ask(): void {
    this.#cancel();
    const askedAt = this.#environment.now();
    this.#watched.probe();
    this.#cancel = this.#environment.after(ANSWER_MS, () => {
      if (this.#heardAt < askedAt) this.#watched.dead();
      else this.#listen(this.#silenceMs - (this.#environment.now() - this.#heardAt));
    });
  }

  /** Ends it. */
  stop(): void {
    this.#cancel();
  }

  #listen(ms: number): void {
    this.#cancel = this.#environment.after(ms, () => {
      const silence = this.#environment.now() - this.#heardAt;
      if (silence >= this.#silenceMs) this.ask();
      else this.#listen(this.#silenceMs - silence);
    });
  }
}
