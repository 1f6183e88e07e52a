/**
 * A client that tells the model something for a single request, for instance where the user is right now. It is sent
 * after all messages, so the provider's cache stays valid. Every request gets the current value, and no later request
 * repeats an old one.
 *
 *     node tests/examples/request_context.mts ws://127.0.0.1:8080/ws \
 *         "What is my position?" "My position is the market square."
 *
 * Asks in a new session, and prints the answer and the session's id. Node runs it directly from version 22.18 on. It
 * uses nothing of Node but the arguments, and only the compiler needs the types.
 */

import type { Command, CommandFrame, HookCall, HookResult, ServerFrame } from "../../protocol/typescript/index.js";

declare const process: { argv: string[]; exitCode?: number };

const [url = "ws://127.0.0.1:8080/ws", question = "What is my position?", now = "My position is the market square."] =
  process.argv.slice(2);

/** Returns the hook's answer. A real program would look it up now; `call.envelope` is what would be sent without it. */
function withPlace(call: HookCall): HookResult {
  return {
    hookCallId: call.hookCallId,
    transformerName: "place",
    patch: [{ op: "messages_uncached_append", messages: [{ role: "user", content: [{ type: "text", text: now }] }] }],
  };
}

const socket = new WebSocket(url, "reseed.v2");

/** Sends a command; a command about a session names it. */
function send(command: Command, sessionId?: string): void {
  socket.send(JSON.stringify({ id: crypto.randomUUID(), ...(sessionId ? { sessionId } : {}), ...command } satisfies CommandFrame));
}

function fail(why: string): void {
  console.error(why);
  process.exitCode = 1;
  socket.close();
}

function received(frame: ServerFrame): void {
  switch (frame.type) {
    case "welcome":
      if (!frame.payload.features.includes("hooks")) return fail("this server asks no hooks");
      // The hook is called before every request is sent. While this client is disconnected, a turn waits for it: a hook
      // is required unless it says `required: false`, in which case the request would be sent without it.
      return send({
        type: "open_session",
        payload: {
          hooks: [{ name: "place", point: "context", reasons: ["ephemeral"], timeoutMs: 5_000 }],
        },
      });
    case "session_opened":
      console.log(`session ${frame.payload.sessionId}`);
      return send({ type: "user_input", payload: { input: question } }, frame.payload.sessionId);
    case "hook_call":
      return send({ type: "hook_result", payload: withPlace(frame.payload) }, frame.sessionId);
    case "hook_failed":
      return console.error(`${frame.payload.hook}: ${frame.payload.error.message}`);
    case "entry_appended": {
      const { entry } = frame.payload;
      if (entry.type !== "message" || entry.role !== "assistant") return;
      return console.log(entry.content.map((part) => (part.type === "text" ? part.text : "")).join(""));
    }
    case "turn_finished":
      if (frame.payload.status !== "completed") return fail(frame.payload.error?.message ?? frame.payload.status);
      return socket.close();
    case "error":
      return fail(frame.payload.message);
  }
}

socket.onopen = () => send({ type: "hello", payload: { protocolVersion: 2 } });
socket.onmessage = (event) => received(JSON.parse(event.data) as ServerFrame);
socket.onerror = () => fail(`there is no server at ${url}`);
