/**
 * A client of reseed: many sessions over one connection that lasts.
 *
 * ```ts
 * import { connect } from "reseed-client";
 *
 * const client = connect("ws://127.0.0.1:8080/ws");
 * const session = await client.createSession();
 * for await (const piece of session.send("My cat is called Miso.").text()) process.stdout.write(piece);
 * ```
 *
 * @module
 */

export { Client, connect, type ConnectOptions, fetchTicket } from "./client.js";
export type { CommandName, PayloadOf, ReplyPayload } from "./connection/commands.js";
export type { Addressed, ConnectionStatus } from "./connection/connection.js";
export { type AfterClose, CLOSE_CODES, type CloseCode, closeCode } from "./connection/close-codes.js";
export type { Environment, Socket, SocketConstructor } from "./connection/environment.js";
export { newId, tabId } from "./connection/ids.js";
export {
  ClientClosed,
  CommandError,
  CommandTooLarge,
  ConnectionLost,
  ConnectionStopped,
  CredentialsRefused,
  NoCredentials,
  OutboxFull,
  SessionEnded,
} from "./errors.js";
export * from "./fold/index.js";
export { type Hook, hook, type HookRun } from "./hosting/hooks.js";
export type { Offer } from "./hosting/offer.js";
export { type Tool, tool, type ToolRun, type Tools } from "./hosting/tools.js";
export { Answer, type AnswerPiece, type AnswerResult, textOf, TurnFailed } from "./session/answer.js";
export { type NewSessionOptions, type SendOptions, Session, type SessionOptions, type SessionView } from "./session/session.js";
export type { SessionStatus } from "./session/subscription.js";
export { SessionList, type SessionsView } from "./sessions.js";
export type * from "./wire.js";
export { WRITING_COMMANDS } from "./wire.js";
