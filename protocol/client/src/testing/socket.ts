/** One end of an in-memory socket pair: the client sees a `WebSocket`, the test sees what it sends. */

import type { Socket, SocketConstructor } from "../connection/environment.js";
import type { CommandFrame, ServerFrame } from "../wire.js";

/** Microtasks between a piece of an answer and the next frame: enough for a reader to receive it separately. */
const PIECE_TURNS = 32;

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
  readyState: number = 0;
  readonly bufferedAmount = 0;
  onopen: Socket["onopen"] = null;
  onmessage: Socket["onmessage"] = null;
  onclose: Socket["onclose"] = null;
  onerror: Socket["onerror"] = null;
  /** Frames that wait until the preceding piece was read; `null` if none must wait. */
  #held: Arriving[] | null = null;
  readonly #peer: Peer;

  /** Connects to a peer. */
  constructor(peer: Peer) {
    this.#peer = peer;
    queueMicrotask(() => {
      if (this.readyState !== 0) return;
      this.readyState = 1;
      this.#peer.connected(this);
      // If the peer refused, it has already dropped the socket, which then never opens.
      if (this.#isOpen()) this.onopen?.({} as never);
    });
  }

  /**
   * Takes a frame from the client. Like a browser's socket, it throws before it is open and drops what comes too late.
   */
  send(text: string): void {
    if (this.readyState === 0) throw new Error("the socket is not open yet");
    if (this.readyState !== 1) return;
    const command = JSON.parse(text) as CommandFrame;
    queueMicrotask(() => {
      if (this.readyState === 1) this.#peer.received(this, command);
    });
  }

  /** Closes the socket from the client's side. */
  close(code = 1000, reason = ""): void {
    this.drop(code, reason);
  }

  #isOpen(): boolean {
    return this.readyState === 1;
  }

  /** Sends a frame to the client. */
  deliver(frame: ServerFrame): void {
    this.#arrive({ data: JSON.stringify(frame), isPiece: frame.type === "item_delta" });
  }

  #arrive(frame: Arriving): void {
    if (this.#held) return void this.#held.push(frame);
    queueMicrotask(() => {
      if (this.readyState === 1) this.onmessage?.({ data: frame.data });
    });
    if (!frame.isPiece) return;
    const held: Arriving[] = [];
    this.#held = held;
    afterTurns(PIECE_TURNS, () => {
      this.#held = null;
      for (const next of held) this.#arrive(next);
    });
  }

  /** Closes the socket from the server's side, or loses it. */
  drop(code = 1006, reason = ""): void {
    if (this.readyState === 3) return;
    this.readyState = 3;
    this.#peer.closed(this);
    queueMicrotask(() => this.onclose?.({ code, reason }));
  }
}

/** A frame in transit to the client. */
interface Arriving {
  readonly data: string;
  /** True for a piece of an answer. */
  readonly isPiece: boolean;
}

/** Calls a function after this many microtasks. */
function afterTurns(turns: number, then: () => void): void {
  queueMicrotask(() => (turns > 1 ? afterTurns(turns - 1, then) : then()));
}

/** Returns a socket constructor that connects to a peer. */
export function socketsTo(peer: Peer): SocketConstructor {
  return class extends FakeSocket {
    constructor() {
      super(peer);
    }
  };
}
