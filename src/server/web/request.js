/**
 * Splits the next request into its parts, with the token cost of each. Pure.
 *
 * The parts are in the order in which they are sent, and their tokens add up to the request's.
 *
 * @typedef {import("reseed-protocol").ContextEnvelope} Envelope
 * @typedef {import("reseed-protocol").ContextMessage} ContextMessage
 * @typedef {import("reseed-protocol").Part} ContentPart
 *
 * @typedef {"system" | "tools" | "summary" | "user" | "assistant" | "toolResults" | "uncached"} Kind named as in the
 * breakdown, whose colours they share
 *
 * @typedef {object} Said A piece of a part's content.
 * @property {string} text
 * @property {string} [label] what it is, unless that is obvious
 * @property {string} [picture] the address of an image
 *
 * @typedef {object} Row
 * @property {string} key stable from request to request
 * @property {Kind} kind
 * @property {string} name
 * @property {number | null} tokens null if the server has not counted by part
 * @property {string} preview one line of the content
 * @property {() => Said[]} said returns the full content
 *
 * @typedef {object} Section
 * @property {string} title
 * @property {Row[]} rows
 */

import { number } from "./dom.js";

/** Characters of a part shown in its row. */
const PREVIEW_CHARS = 120;

/** @type {Record<string, [Kind, string]>} */
const ROLES = { user: ["user", "User"], assistant: ["assistant", "Assistant"], tool: ["toolResults", "Tool result"] };

/**
 * Returns the parts of a request by section; empty sections are left out.
 * @param {Envelope} envelope
 * @param {(entryId: string) => boolean} isSummary returns true if an entry is a compaction
 * @returns {Section[]}
 */
export function sectionsOf({ system, tools, messages, meta }, isSummary) {
  const counts = meta?.parts;
  const rows = (/** @type {ContextMessage[]} */ of, /** @type {number[] | undefined} */ tokens, /** @type {string} */ prefix) => {
    // Messages that belong to no entry are identified by their position.
    return of.map((message, index) => messageRow(message, tokens?.[index] ?? null, `${prefix}${index}`, isSummary));
  };
  const sections = [
    {
      title: "System prompt",
      rows: system.parts.map(({ name, text }, index) =>
        row(`system:${name}`, "system", name, counts?.system[index], () => [{ text }])),
    },
    {
      title: "Tools",
      rows: tools.map(({ name, description, parameters }, index) =>
        row(`tool:${name}`, "tools", name, counts?.tools[index], () => [{ text: description }, { label: "Arguments", text: JSON.stringify(parameters, null, 2) }])),
    },
    { title: "Messages", rows: rows(messages.cached, counts?.cached, "cached:") },
    {
      title: "For this request only",
      rows: rows(messages.uncached, counts?.uncached, "uncached:").map((one) => ({ ...one, kind: /** @type {Kind} */ ("uncached") })),
    },
  ];
  return sections.filter((section) => section.rows.length > 0);
}

/**
 * @param {string} key
 * @param {Kind} kind
 * @param {string} name
 * @param {number | null | undefined} tokens
 * @param {() => Said[]} said
 * @returns {Row}
 */
function row(key, kind, name, tokens, said) {
  const first = said().map(({ text, label }) => (label ? `${label} ${text}` : text)).join(" ");
  return { key, kind, name, tokens: tokens ?? null, preview: oneLine(first), said };
}

/** @param {string} text */
function oneLine(text) {
  const line = text.slice(0, 4 * PREVIEW_CHARS).replace(/\s+/g, " ").trim();
  return line.length > PREVIEW_CHARS ? `${line.slice(0, PREVIEW_CHARS)}…` : line;
}

/**
 * @param {ContextMessage} of
 * @param {number | null} tokens
 * @param {string} place
 * @param {(entryId: string) => boolean} isSummary
 * @returns {Row}
 */
function messageRow({ entryId, message }, tokens, place, isSummary) {
  const [kind, name] = ROLES[message.role] ?? ["user", message.role];
  const summary = entryId !== undefined && isSummary(entryId);
  const said = () => message.content.map(saidOf);
  return row(entryId ?? place, summary ? "summary" : kind, summary ? "Summary" : name, tokens, said);
}

/**
 * @param {ContentPart} part
 * @returns {Said}
 */
function saidOf(part) {
  switch (part.type) {
    case "text": return { text: part.text };
    case "reasoning": return { label: "Reasoning", text: part.text };
    case "tool_call": return { label: `Calls ${part.name}`, text: part.arguments };
    case "tool_result": return part.isError ? { label: "Failed", text: part.output } : { text: part.output };
    case "image": return /^data:/i.test(part.url) ? { label: "Picture", text: "", picture: part.url } : { label: "Picture", text: part.url };
    default: return { text: JSON.stringify(part) };
  }
}

/**
 * Returns the tokens by kind, in the order in which the kinds first appear in the request. The fixed cost of any
 * request comes last.
 * @param {Section[]} sections
 * @param {Envelope["meta"] | undefined} meta
 * @returns {{ kind: Kind | "frame", tokens: number }[]}
 */
export function stackOf(sections, meta) {
  /** @type {Map<Kind | "frame", number>} */
  const sums = new Map();
  for (const { kind, tokens } of sections.flatMap((section) => section.rows)) sums.set(kind, (sums.get(kind) ?? 0) + (tokens ?? 0));
  if (meta?.parts) sums.set("frame", meta.parts.frame);
  return [...sums].map(([kind, tokens]) => ({ kind, tokens })).filter(({ tokens }) => tokens > 0);
}

/**
 * Describes what the request is for.
 * @param {{ model: string, windowTokens: number, turnId?: string, request?: number } | null | undefined} meta
 * @param {number} tokens
 */
export function aboutText(meta, tokens) {
  if (!meta?.model) return `${number(tokens)} tokens`;
  const of = `${number(tokens)} of ${number(meta.windowTokens)} tokens`;
  const turn = meta.turnId === undefined ? "" : ` · request ${meta.request} for the answer that is being written`;
  return `${meta.model} · ${of}${turn}`;
}

/**
 * Describes the options that are sent; empty if all are left to the provider.
 * @param {Envelope["options"]} options
 */
export function optionsText({ temperature, maxOutputTokens, reasoningEffort }) {
  const words = [];
  if (temperature !== undefined) words.push(`temperature ${temperature}`);
  if (maxOutputTokens !== undefined) words.push(`at most ${number(maxOutputTokens)} tokens of answer`);
  if (reasoningEffort !== undefined) words.push(`reasoning effort ${reasoningEffort}`);
  return words.join(" · ");
}
