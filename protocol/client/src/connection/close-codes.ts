/** The close codes, with the client's reaction to each. */

/**
 * The reaction to a close: `reconnect` and resume, `renew` the credentials and reconnect, or `stop`, since retrying
 * would change nothing.
 */
export type AfterClose = "reconnect" | "renew" | "stop";

/** One close code. */
export interface CloseCode {
  /** The meaning of the code. */
  readonly meaning: string;
  /** The reaction of the client. */
  readonly then: AfterClose;
  /** Minimum milliseconds to wait. */
  readonly waitMs?: number;
}

/** Every close code that the server sends or that a connection may meet on the way. */
export const CLOSE_CODES = {
  1000: { meaning: "closed by either side", then: "stop" },
  1001: { meaning: "the server or a proxy goes away", then: "reconnect" },
  1002: { meaning: "the client violated RFC 6455", then: "stop" },
  1003: { meaning: "the client sent a kind of data that is not accepted", then: "stop" },
  1006: { meaning: "the connection was lost, or refused before it was open", then: "reconnect" },
  1007: { meaning: "a frame was not UTF-8", then: "stop" },
  1008: { meaning: "a proxy's policy refused the connection", then: "stop" },
  1009: { meaning: "a frame was too large", then: "reconnect" },
  1011: { meaning: "an internal error of the server", then: "reconnect" },
  1012: { meaning: "the server restarts", then: "reconnect" },
  1013: { meaning: "the server is full", then: "reconnect" },
  1014: { meaning: "a gateway got a bad response", then: "reconnect" },
  4400: { meaning: "too many bad frames in a row", then: "stop" },
  4401: { meaning: "the credentials are missing, wrong or expired", then: "renew" },
  4403: { meaning: "the grant was revoked", then: "stop" },
  4408: { meaning: "no hello arrived in time", then: "reconnect" },
  4429: { meaning: "the rate limit was far exceeded", then: "reconnect", waitMs: 60_000 },
  4504: { meaning: "this client read too slowly", then: "reconnect" },
  4508: { meaning: "no pong was received", then: "reconnect" },
} as const satisfies Record<number, CloseCode>;

/** Returns what a close code means. Unknown 44xx codes are final; all other unknown codes are not. */
export function closeCode(code: number): CloseCode {
  const known: CloseCode | undefined = (CLOSE_CODES as Record<number, CloseCode>)[code];
  if (known) return known;
  const isFinal = code >= 4400 && code < 4500;
  return { meaning: `close code ${code}`, then: isFinal ? "stop" : "reconnect" };
}
