/**
 * Explains errors in plain language: what happened and what to do. The error code and the message of the server or the
 * client are the details. Pure.
 *
 * @typedef {object} Explained
 * @property {string} text what happened, and what to do
 * @property {string} [past] the same once there is nothing left to try again
 * @property {string} [details] for readers who want to know more
 *
 * @typedef {{ code: string, message: string, retriable?: boolean, retryAfterMs?: number }} Refusal
 */

import { CommandError, ConnectionLost, SessionEnded } from "./client.js";

const AGAIN = "Try again.";
const OPERATOR = "Tell the person who runs this server.";

/** @type {Record<string, [string, string]>} what happened, what to do */
const WORDS = {
  // Model and provider
  upstream_unreachable: ["The model’s server cannot be reached.", "Try again; if it stays so, check that the model’s server is running."],
  upstream_timeout: ["The model took too long to answer.", AGAIN],
  upstream_auth: ["The model’s provider did not accept this server’s key.", OPERATOR],
  upstream_quota: ["The account at the model’s provider is out of quota.", "Check its billing."],
  budget_exhausted: ["The budget for this is used up.", "Wait until it is filled again."],
  upstream_rate_limited: ["The model’s provider is getting too many requests.", "Wait a moment, then try again."],
  upstream_overloaded: ["The model’s server is overloaded.", "Wait a moment, then try again."],
  upstream_not_found: ["The model’s provider does not know this model.", "Choose another one with /model."],
  upstream_rejected: ["The model’s provider did not accept the request.", "Ask differently, or choose another model with /model."],
  upstream_error: ["The model’s server failed.", AGAIN],
  upstream_truncated: ["The answer broke off in the middle.", AGAIN],
  upstream_empty: ["The model gave no answer.", AGAIN],
  upstream_malformed: ["The model’s server sent something that is no answer.", OPERATOR],
  content_filtered: ["The provider’s filter did not allow this.", "Ask differently."],
  too_many_tool_rounds: ["The model kept using tools and gave no answer.", "Try again, or ask differently."],
  turn_timeout: ["The answer and its tools took too long.", AGAIN],
  no_pending_approval: ["This is decided already.", ""],
  interrupted: ["The server stopped while the answer was being written.", AGAIN],
  unknown_model: ["The size of this model’s window is not known.", "Choose another model with /model."],
  // Context
  context_overflow: ["This chat no longer fits into the model’s window.", "Summarise the older part with /compact, then try again."],
  input_too_large: ["This message is too long for the model’s window.", "Send less, or choose a model with a larger window."],
  nothing_to_compact: ["There is nothing worth summarising yet.", "Go on; there is room."],
  compaction_running: ["The chat is being summarised already.", "Wait until that is done."],
  compaction_cancelled: ["Summarising was cancelled.", "The chat is unchanged."],
  compaction_void: ["The summary was not used, because the chat has changed.", "There is nothing to do."],
  no_compaction: ["Nothing is being summarised.", ""],
  nothing_to_undo: ["There is no summary that could be undone.", ""],
  preview_not_found: ["This preview has expired.", "Make a new one."],
  history_moved: ["The chat has changed since this preview was made.", "Make a new one."],
  too_many_pins: ["No more messages can be pinned.", "Unpin one that matters less."],
  unknown_strategy: ["There is no such compaction strategy.", "Choose one in the panel behind the gauge."],
  // Commands
  empty_input: ["There is nothing to send.", "Write something."],
  queue_full: ["Too many messages are waiting already.", "Wait for an answer, then send this again."],
  not_queued: ["This message is not waiting any more.", ""],
  input_cancelled: ["This message was not sent.", AGAIN],
  turn_running: ["An answer is being written.", "Wait for it, or stop it."],
  no_turn: ["No answer is being written.", ""],
  too_late: ["This came too late.", "There is nothing to do."],
  nothing_to_retry: ["There is nothing to try again.", "Write a message."],
  leaf_moved: ["Somebody has written in this chat meanwhile.", "Read it, then send this again."],
  navigation_cancelled: ["The chat is where it was.", AGAIN],
  entry_not_found: ["This message is not in the chat.", ""],
  // Chats and access
  no_session: ["No chat is open.", "Choose one, or begin a new one."],
  session_not_found: ["This chat does not exist any more.", "Choose another one."],
  too_many_subscriptions: ["This page has too many chats open at once.", "Reload it, then try again."],
  session_damaged: ["A part of this chat cannot be read any more, so nothing can be added to it.", OPERATOR],
  read_only: ["You have read-only access to this chat.", ""],
  unauthenticated: ["The sign-in is missing or has expired.", "Sign in again."],
  forbidden: ["You are not allowed to do this.", ""],
  rate_limited: ["That was too much in a short time.", "Wait a moment, then try again."],
  // Server
  hook_failed: ["An extension of this server failed.", "Try again; if it happens again, tell the person who runs this server."],
  hook_timeout: ["An extension of this server took too long.", AGAIN],
  hook_unavailable: ["An extension that is needed here is not connected.", "Connect it, then try again."],
  store_failed: ["The server's store failed.", "Reload the page, and try again if this is not there; if it happens again, tell the person who runs this server."],
  overloaded: ["The server is busy.", "Try again in a moment."],
  shutting_down: ["The server is stopping.", "Wait for it to come back."],
  internal: ["The server made a mistake.", "Try again; if it happens again, tell the person who runs this server."],
};

/** @type {Record<string, string>} explanations of the client's own errors, by error name */
const CLIENT_WORDS = {
  CommandTooLarge: "This is too long for the server. Send less.",
  ConnectionLost: "The connection was lost. Try again.",
  ConnectionStopped: "There is no connection. Connect again, then try again.",
  CredentialsRefused: "The sign-in is missing or has expired. Sign in again.",
  NoCredentials: "The sign-in is missing or has expired. Sign in again.",
  OutboxFull: "Too much is waiting for the connection already. Try again when it is back.",
};

/**
 * Explains an error in plain language.
 * @param {unknown} error
 * @returns {Explained}
 */
export function explainError(error) {
  if (error instanceof CommandError) return explain(error);
  if (!(error instanceof Error)) return { text: "That did not work.", details: String(error) };
  const { name, message } = error;
  const text = CLIENT_WORDS[name];
  return text ? { text, details: `${name}: ${message}` } : { text: `${message.charAt(0).toUpperCase()}${message.slice(1)}.` };
}

/**
 * Returns true if the page already shows what this error would say: the connection is lost or a chat was deleted.
 * @param {unknown} error
 * @param {boolean} isConnected
 */
export function isTold(error, isConnected) {
  return error instanceof SessionEnded || (error instanceof ConnectionLost && !isConnected);
}

/**
 * @param {Refusal} refusal
 * @returns {Explained}
 */
export function explain({ code, message, retriable, retryAfterMs }) {
  const [what, todo] = WORDS[code] ?? ["That did not work.", retriable ? AGAIN : ""];
  const seconds = retryAfterMs ? Math.ceil(retryAfterMs / 1000) : 0;
  const wait = seconds > 1 ? `The server asks to wait ${seconds} s.` : "";
  const text = [what, todo, wait].filter(Boolean).join(" ");
  return { text, past: /try again/i.test(todo) ? what : text, details: `${code}: ${message}` };
}

/**
 * Explains why the model's server is asked again.
 * @param {string} reason an error code
 */
export function explainDelay(reason) {
  // A reader sees an answer that broke off before its first word as a failure.
  const [what] = WORDS[reason === "upstream_truncated" ? "upstream_error" : reason] ?? WORDS.upstream_error;
  return what;
}

/**
 * Explains in the chat why an answer did not come.
 * @param {string} status
 * @param {Refusal} [error]
 * @returns {Explained}
 */
export function explainEnd(status, error) {
  if (error) return explain(error);
  if (status === "cancelled") return { text: "This answer was stopped." };
  if (status === "interrupted") return explain({ code: "interrupted", message: "the server stopped", retriable: true });
  return { text: "There was no answer. Try again.", past: "There was no answer." };
}
