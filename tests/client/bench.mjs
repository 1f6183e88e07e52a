/** A client on the in-memory server, with a clock that the test controls. */

import { connect } from "reseed-client";
import { FakeServer } from "reseed-client/testing";

/** The clock and random numbers, controlled by a test. */
export class Hands {
  time = 0;
  chance = 0.5;
  #timers = new Set();
  #wakers = new Set();

  /** Warnings for the developer. */
  warned = [];

  environment = {
    origin: null,
    warn: (message) => void this.warned.push(message),
    now: () => this.time,
    random: () => this.chance,
    after: (ms, then) => {
      const timer = { at: this.time + ms, then };
      this.#timers.add(timer);
      return () => void this.#timers.delete(timer);
    },
    onWake: (then) => {
      this.#wakers.add(then);
      return () => void this.#wakers.delete(then);
    },
  };

  /** Advances time and runs everything that falls due. */
  async pass(ms) {
    await quiet();
    const end = this.time + ms;
    for (;;) {
      const due = [...this.#timers].filter((timer) => timer.at <= end).sort((one, other) => one.at - other.at)[0];
      if (!due) break;
      this.#timers.delete(due);
      this.time = Math.max(this.time, due.at);
      due.then();
      await quiet();
    }
    this.time = end;
    await quiet();
  }

  /** Signals that the network is back or the page visible again. */
  async wake() {
    for (const wake of this.#wakers) wake();
    await quiet();
  }
}

/** Lets everything run that needs no time. */
export async function quiet() {
  for (let turn = 0; turn < 4; turn += 1) await new Promise((resolve) => setImmediate(resolve));
}

/** Creates a server, a client on it and their clock. */
export async function bench(options = {}) {
  const hands = new Hands();
  const server = new FakeServer();
  const client = connect(server.url, {
    WebSocket: server.WebSocket,
    environment: hands.environment,
    clientId: "tab",
    ...options,
  });
  await quiet();
  return { hands, server, client };
}

/** The same, with an open session. */
export async function opened(options = {}, sessionOptions = {}) {
  const made = await bench(options);
  const fake = made.server.session();
  const session = made.client.session(fake.id, sessionOptions);
  await session.opened();
  return { ...made, fake, session };
}

/** Returns the types of the commands received. */
export function types(server) {
  return server.commands.map((command) => command.type);
}
