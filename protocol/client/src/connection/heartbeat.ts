/**
 * Detects whether the other end is still there. A browser hides WebSocket pings from its page, so after a silence the
 * client sends a probe itself.
 */

import type { Environment } from "./environment.js";

/** Milliseconds allowed for the answer. */
const ANSWER_MS = 10_000;

/** The dependencies of a heartbeat. */
export interface Watched {
  /** Sends something that the server must answer. */
  probe(): void;
  /** Called when the probe was not answered. */
  dead(): void;
}

/** Monitors one connection. */
export class Heartbeat {
  readonly #environment: Environment;
  readonly #silenceMs: number;
  readonly #watched: Watched;
  #heardAt: number;
  #cancel: () => void = () => undefined;

  /** Starts monitoring; `silenceMs` is the silence after which it probes. */
  constructor(environment: Environment, silenceMs: number, watched: Watched) {
    this.#environment = environment;
    this.#silenceMs = silenceMs;
    this.#watched = watched;
    this.#heardAt = environment.now();
    this.#listen(silenceMs);
  }

  /** Records that something was received. It is cheap, since it runs on every frame. */
  heard(): void {
    this.#heardAt = this.#environment.now();
  }

  /** Probes now, because the network may have changed. */
  ask(): void {
    this.#cancel();
    const askedAt = this.#environment.now();
    this.#watched.probe();
    this.#cancel = this.#environment.after(ANSWER_MS, () => {
      if (this.#heardAt < askedAt) this.#watched.dead();
      else this.#listen(this.#silenceMs - (this.#environment.now() - this.#heardAt));
    });
  }

  /** Stops monitoring. */
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
