/** Passes each kind of socket to `connect` without a cast. `package.test.mjs` compiles it. */

import { type Client, connect, type Socket, type SocketConstructor } from "reseed-client";
import { FakeServer } from "reseed-client/testing";
import Default, { WebSocket } from "ws";

class Derived extends WebSocket {
  constructor(url: string, protocols: string) {
    super(url, protocols, { maxPayload: 1024 });
  }
}

connect("ws://127.0.0.1:8080", { WebSocket }) satisfies Client;
connect("ws://127.0.0.1:8080", { WebSocket: Default });
connect("ws://127.0.0.1:8080", { WebSocket: Derived });
connect("ws://127.0.0.1:8080", { WebSocket: new FakeServer().WebSocket });
new WebSocket("ws://127.0.0.1:8080", "reseed.v2") satisfies Socket;
Default satisfies SocketConstructor;

// @ts-expect-error: this one cannot send
connect("ws://127.0.0.1:8080", { WebSocket: class {} });
