/** The errors of failed requests. */

import type { ErrorBody, ErrorCode } from "./wire.js";

/**
 * The server refused a command. Decide by `code` and `retriable`, show `message`. After `store_failed` and
 * `shutting_down` a writing command may have been stored anyway: the client has resent it before giving up.
 */
export class CommandError extends Error {
  override readonly name = "CommandError";
  /** The error code. A newer server may send one that the type lacks. */
  readonly code: ErrorCode;
  /** True if the same command may succeed when resent unchanged. */
  readonly retriable: boolean;
  /** Milliseconds to wait before that. */
  readonly retryAfterMs: number | undefined;
  /** Details for programs: the offending `field`, the running `jobId`. */
  readonly details: Readonly<Record<string, unknown>>;

  /** Creates the error from the server's reply. */
  constructor(body: ErrorBody) {
    super(body.message);
    this.code = body.code;
    this.retriable = body.retriable;
    this.retryAfterMs = body.retryAfterMs;
    this.details = body.details ?? {};
  }
}

/** The connection was lost before the reply, and the command cannot be resent safely. */
export class ConnectionLost extends Error {
  override readonly name = "ConnectionLost";
}

/** This client was closed with `client.close()`; nothing more is sent. */
export class ClientClosed extends Error {
  override readonly name = "ClientClosed";
}

/** The server refused the token or ticket, and the renewed one too. `client.reconnect()` tries again with new ones. */
export class CredentialsRefused extends Error {
  override readonly name = "CredentialsRefused";
}

/** The connection ended in a way that reconnecting cannot fix; nothing is sent until `client.reconnect()`. */
export class ConnectionStopped extends Error {
  override readonly name = "ConnectionStopped";
  /** The close code. */
  readonly code: number;

  /** Creates the error from the close. */
  constructor(code: number, reason: string) {
    super(reason);
    this.code = code;
  }
}

/** The session was closed, here or by the server. */
export class SessionEnded extends Error {
  override readonly name = "SessionEnded";
}

/** Too many commands are waiting for the connection. */
export class OutboxFull extends Error {
  override readonly name = "OutboxFull";
}

/** The command is larger than the server accepts. */
export class CommandTooLarge extends Error {
  override readonly name = "CommandTooLarge";
}

/**
 * There are no credentials, and asking again would not help. Throw it from the `token` or `ticket` callback to stop
 * reconnecting, for instance once the user has logged out.
 */
export class NoCredentials extends Error {
  override readonly name = "NoCredentials";
}

/** Converts a thrown value to an error. */
export function asError(thrown: unknown): Error {
  return thrown instanceof Error ? thrown : new Error(String(thrown));
}
