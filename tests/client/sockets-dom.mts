/** The same as `sockets.mts` for the `WebSocket` of a page or of Node itself. */

import { connect, type SocketConstructor } from "reseed-client";

connect("ws://127.0.0.1:8080", { WebSocket });
connect("ws://127.0.0.1:8080", { WebSocket: class extends WebSocket {} });
globalThis.WebSocket satisfies SocketConstructor;
