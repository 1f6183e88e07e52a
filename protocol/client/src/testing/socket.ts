/** One end of a socket pair in memory: the client sees a `WebSocket`, the test what it sends. */

import type { Socket, SocketConstructor } from "../connection/environment.js";
import type { CommandFrame, ServerFrame } from "../wire.js";

/** The server's side of one connection. */
export interface Peer {
  /** A client has connected. */
  connected(socket: FakeSocket): void;
  /** A command has arrived. */
  received(socket: FakeSocket, command: CommandFrame): void;
  /** The connection has ended. */
  closed(socket: FakeSocket): void;
}

/** A socket whose other end is a `Peer`. Everything arrives in a later microtask, in order. */
export class FakeSocket implements Socket {
  readyState = 0;
  readonly bufferedAmount = 0;
  onopen: ((event: never) => void) | null = null;
  onmessage: ((event: { data: unknown }) => void) | null = null;
  onclose: ((event: { code: number; reason: string }) => void) | null = null;
  onerror: ((event: never) => void) | null = null;
  readonly #peer: Peer;

  /** Connects to a peer. */
  constructor(peer: Peer) {
    this.#peer = peer;
    queueMicrotask(() => {
      if (this.readyState !== 0) return;
      this.readyState = 1;
      this.#peer.connected(this);
      this.onopen?.({} as never);
    });
  }

  /** Takes a frame of the client. */
  send(text: string): void {
    if (this.readyState !== 1) throw new Error("the socket is not open");
    const command = JSON.parse(text) as CommandFrame;
    queueMicrotask(() => {
      if (this.readyState === 1) this.#peer.received(this, command);
    });
  }

  /** Closes it from the client's side. */
  close(code = 1000, reason = ""): void {
    this.drop(code, reason);
  }

  /** Sends a frame to the client. */
  deliver(frame: ServerFrame): void {
    const data = JSON.stringify(frame);
    queueMicrotask(() => {
      if (this.readyState === 1) this.onmessage?.({ data });
    });
  }

  /** Closes it from the server's side, or loses it. */
  drop(code = 1006, reason = ""): void {
    if (this.readyState === 3) return;
    this.readyState = 3;
    this.#peer.closed(this);
    queueMicrotask(() => this.onclose?.({ code, reason }));
  }
}

/** Returns a socket constructor that connects to a peer. */
export function socketsTo(peer: Peer): SocketConstructor {
  return class extends FakeSocket {
    constructor() {
      super(peer);
    }
  };
}
