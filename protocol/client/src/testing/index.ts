/**
 * For tests of programs that use this client: a server in memory, and the protocol's example frames.
 *
 * ```ts
 * const server = new FakeServer();
 * const client = connect(server.url, { WebSocket: server.WebSocket });
 * ```
 *
 * @module
 */

export { FakeServer, type Handled, type Handler } from "./fake-server.js";
export { FakeSession } from "./fake-session.js";
export { example, type ExampleName, payload } from "./frames.js";
export { FakeSocket } from "./socket.js";
