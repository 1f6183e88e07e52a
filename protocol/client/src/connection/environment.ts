/** The runtime services that a client uses: sockets, clock, random numbers and network changes. */

/** A socket event handler. It is a method, so that handlers of an implementation's richer events are assignable. */
type SocketHandler<E> = { handle(event: E): void }["handle"];

/** The part of the browser's `WebSocket` in use. The class of npm's `ws` has it too. */
export interface Socket {
  /** 1 while the socket is open. */
  readonly readyState: number;
  /** Bytes waiting to be sent. */
  readonly bufferedAmount: number;
  /** Sends a text frame. */
  send(text: string): void;
  /** Closes the socket. */
  close(code?: number, reason?: string): void;
  /** Called once the socket is open. */
  onopen: SocketHandler<never> | null;
  /** Called for each frame. */
  onmessage: SocketHandler<{ data: unknown }> | null;
  /** Called once the socket has closed. */
  onclose: SocketHandler<{ code: number; reason: string }> | null;
  /** Called before `onclose` if the socket failed. */
  onerror: SocketHandler<never> | null;
}

/** Creates sockets. */
export type SocketConstructor = new (url: string, protocols: string) => Socket;

/** The clock and random numbers; tests replace them. */
export interface Environment {
  /** Milliseconds since 1970. */
  now(): number;
  /** A number from 0 to below 1. */
  random(): number;
  /** Calls a function later. Returns the function that cancels it. */
  after(ms: number, then: () => void): () => void;
  /**
   * Calls a function whenever the network may be back: on `online`, and when the page becomes visible. Returns the
   * function that unsubscribes.
   */
  onWake(then: () => void): () => void;
  /** The origin of the current page; `null` outside a browser. */
  readonly origin: string | null;
  /** Warns the page's developer about something that its user cannot fix. */
  warn(message: string): void;
}

/** Maximum delay of a timer in milliseconds; engines treat a longer one as zero. */
const TIMER_MS_MAX = 2 ** 31 - 1;

/** The real clock, and the browser's events if there are any. */
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

/** Returns the socket constructor: the given one, or the runtime's. */
export function socketConstructor(given: SocketConstructor | undefined): SocketConstructor {
  const found = given ?? (globalThis as { WebSocket?: SocketConstructor }).WebSocket;
  if (found) return found;
  throw new TypeError("this runtime has no WebSocket; pass one as `WebSocket`, for instance that of npm's `ws`");
}
