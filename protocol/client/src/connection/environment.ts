/** The services of the runtime that a client uses: sockets, a clock, random numbers, and changes of the network. */

/** A handler of a socket's event. A method, so that one for a richer event of some implementation is assignable. */
type SocketHandler<E> = { handle(event: E): void }["handle"];

/** The part of the browser's `WebSocket` that is used. The class of npm's `ws` has it too. */
export interface Socket {
  /** 1 while it is open. */
  readonly readyState: number;
  /** Bytes that wait to be sent. */
  readonly bufferedAmount: number;
  /** Sends a text frame. */
  send(text: string): void;
  /** Closes it. */
  close(code?: number, reason?: string): void;
  /** Called when it is open. */
  onopen: SocketHandler<never> | null;
  /** Called with each frame. */
  onmessage: SocketHandler<{ data: unknown }> | null;
  /** Called when it has ended. */
  onclose: SocketHandler<{ code: number; reason: string }> | null;
  /** Called before that, if it failed. */
  onerror: SocketHandler<never> | null;
}

/** Makes sockets. */
export type SocketConstructor = new (url: string, protocols: string) => Socket;

/** Time and chance; tests put their own in their place. */
export interface Environment {
  /** Milliseconds since 1970. */
  now(): number;
  /** A number from 0 to below 1. */
  random(): number;
  /** Calls a function later, and returns the function that prevents it. */
  after(ms: number, then: () => void): () => void;
  /**
   * Calls a function whenever the network may have come back: on `online`, and when the page becomes visible. Returns
   * the function that ends it.
   */
  onWake(then: () => void): () => void;
  /** The origin of the page that this runs in; `null` outside a browser. */
  readonly origin: string | null;
  /** Tells the developer of the page something that its user cannot do anything about. */
  warn(message: string): void;
}

/** Milliseconds that a timer waits at most; engines take a longer wait for none. */
const TIMER_MS_MAX = 2 ** 31 - 1;

/** The real time, and the browser's events where there are some. */
export const realEnvironment: Environment = {
  now: () => Date.now(),
  random: () => Math.random(),
  origin: typeof document === "undefined" ? null : document.location.origin,
  warn: (message) => console.warn(message),
  after(ms, then) {
    const timer = setTimeout(then, Math.min(ms, TIMER_MS_MAX));
    return () => clearTimeout(timer);
  },
  onWake(then) {
    if (typeof window === "undefined" || typeof document === "undefined") return () => undefined;
    const seen = (): void => {
      if (document.visibilityState === "visible") then();
    };
    window.addEventListener("online", then);
    document.addEventListener("visibilitychange", seen);
    return () => {
      window.removeEventListener("online", then);
      document.removeEventListener("visibilitychange", seen);
    };
  },
};

/** Returns the socket to use: the given one, or that of the environment. */
export function socketConstructor(given: SocketConstructor | undefined): SocketConstructor {
  const found = given ?? (globalThis as { WebSocket?: SocketConstructor }).WebSocket;
  if (found) return found;
  throw new TypeError("this runtime has no WebSocket; pass one as `WebSocket`, for instance that of npm's `ws`");
}
