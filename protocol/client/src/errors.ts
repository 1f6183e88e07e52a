/** Why something that was asked for did not happen. */

import type { ErrorBody, ErrorCode } from "./wire.js";

/**
 * The server refused a command. Decide by `code` and `retriable`, show `message`. A command that changes something may
 * be stored all the same after `store_failed` and `shutting_down`: the client has sent it again before it gives up.
 */
export class CommandError extends Error {
  override readonly name = "CommandError";
  /** The error code. A newer server may send one that is not in the type. */
  readonly code: ErrorCode;
  /** True if the same command may succeed when it is sent again unchanged. */
  readonly retriable: boolean;
  /** Milliseconds to wait before that. */
  readonly retryAfterMs: number | undefined;
  /** More for programs: the offending `field`, the running `jobId`. */
  readonly details: Readonly<Record<string, unknown>>;

  /** Creates it from the server's words. */
  constructor(body: ErrorBody) {
    super(body.message);
    this.code = body.code;
    this.retriable = body.retriable;
    this.retryAfterMs = body.retryAfterMs;
    this.details = body.details ?? {};
  }
}

/** The connection was lost before the reply, and the command is not one that can be sent again safely. */
export class ConnectionLost extends Error {
  override readonly name = "ConnectionLost";
}

/** This client was closed with `client.close()`; nothing is sent any more. */
export class ClientClosed extends Error {
  override readonly name = "ClientClosed";
}

/** The server refused the token or the ticket, and renewed ones too. `client.reconnect()` tries others. */
export class CredentialsRefused extends Error {
  override readonly name = "CredentialsRefused";
}

/** The connection ended in a way that connecting again does not help; nothing is sent until `client.reconnect()`. */
export class ConnectionStopped extends Error {
  override readonly name = "ConnectionStopped";
  /** The close code. */
  readonly code: number;

  /** Creates it from the close. */
  constructor(code: number, reason: string) {
    super(reason);
    this.code = code;
  }
}

/** The session was closed, here or by the server. */
export class SessionEnded extends Error {
  override readonly name = "SessionEnded";
}

/** Too many commands wait for the connection. */
export class OutboxFull extends Error {
  override readonly name = "OutboxFull";
}

/** The command is larger than the server accepts. */
export class CommandTooLarge extends Error {
  override readonly name = "CommandTooLarge";
}

/**
 * There are no credentials, and asking again will not help. Throw it from the `token` or `ticket` callback to stop
 * reconnecting, for instance when the user has logged out.
 */
export class NoCredentials extends Error {
  override readonly name = "NoCredentials";
}

/** Returns what was thrown as an error. */
export function asError(thrown: unknown): Error {
  return thrown instanceof Error ? thrown : new Error(String(thrown));
}
