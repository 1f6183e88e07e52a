/**
 * Writes a chat as a file: a branch or all branches, as Markdown to read or as JSON with every entry as the server has
 * it.
 *
 * @typedef {import("reseed-protocol").Entry} Entry
 * @typedef {import("reseed-protocol").Part} Part
 * @typedef {"markdown" | "json"} Format
 * @typedef {"branch" | "all"} Scope
 */

import { fileOf } from "./attached.js";
import { number } from "./dom.js";
import { untagged } from "./tree.js";

/** Entries per page: the server's maximum. */
const PAGE_ENTRIES = 500;
/** Maximum pages, so that no server can make the page fetch indefinitely. */
const PAGES_MAX = 400;
/** A line that opens or closes a fence, also in a list. */
const FENCE = /^(\s*(?:(?:[-*+]|\d{1,9}[.)])\s+)?)(`{3,}|~{3,})(.*)$/;

/**
 * Fetches the entries of a chat.
 * @param {import("./app.js").App} app
 * @param {string} sessionId
 * @param {Scope} scope
 * @param {(count: number) => void} onProgress
 * @returns {Promise<Entry[]>} oldest first
 */
export async function entriesOf(app, sessionId, scope, onProgress) {
  /** @type {Entry[][]} */
  const pages = [];
  let count = 0;
  /** @type {string | undefined} */
  let before;
  for (let page = 0; page < PAGES_MAX; page += 1) {
    const options = { limit: PAGE_ENTRIES, ...(scope === "branch" ? { path: true } : {}), ...(before ? { before } : {}) };
    const { items, more } = await app.client.request("get_entries", options, { session: sessionId });
    pages.unshift(items);
    count += items.length;
    onProgress(count);
    before = items[0]?.entryId;
    if (!more || !before) return pages.flat();
  }
  throw new Error(`the chat has more than ${number(PAGES_MAX * PAGE_ENTRIES)} entries, which is too much for a page`);
}

/**
 * @param {import("./client.js").SessionSnapshot} snapshot
 * @param {Entry[]} entries
 * @param {Scope} scope
 */
export function jsonOf({ sessionId, name, model, leafId }, entries, scope) {
  const about = { format: "reseed-chat", version: 1, exportedAt: new Date().toISOString(), sessionId, name, model, leafId, scope };
  return `${JSON.stringify({ ...about, entries }, null, 2)}\n`;
}

/**
 * Writes a branch as Markdown.
 * @param {string} name
 * @param {Entry[]} entries
 */
export function markdownOf(name, entries) {
  return `${[`# ${name || "Untitled"}`, ...entries.flatMap(section)].join("\n\n")}\n`;
}

/**
 * @param {Entry} entry
 * @returns {string[]}
 */
function section(entry) {
  const time = new Date(entry.timestamp).toLocaleString();
  switch (entry.type) {
    case "message": {
      const who = { user: "You", assistant: entry.model ? `Answer of ${entry.model}` : "Answer", tool: "Tool result" }[entry.role];
      return [`## ${who} · ${time}`, ...entry.content.map(partText), entry.incomplete ? "*This answer is incomplete.*" : ""].filter(Boolean);
    }
    case "custom_message": return entry.display ? [`## ${entry.customType} · ${time}`, ...entry.content.map(partText)] : [];
    case "compaction": {
      const after = entry.tokensAfter === undefined ? "" : ` to ${number(entry.tokensAfter)}`;
      return ["---", `*Older messages were summarised for the model: from ${number(entry.tokensBefore)}${after} tokens · ${time}*`, quoted(untagged(entry.summary))].filter(Boolean);
    }
    case "branch_summary": return ["*Summary of the branch that was left*", quoted(untagged(entry.summary))];
    case "model_change": return [`*The model is ${entry.model} from here on.*`];
    default: return [];
  }
}

/** @param {Part} part */
function partText(part) {
  switch (part.type) {
    case "text": {
      const file = fileOf(part);
      return file ? `*File* \`${file.name.replaceAll("`", "'")}\`\n\n${fenced(file.text, "")}` : closed(part.text);
    }
    // The exported file loads nothing from other servers.
    case "image": {
      const isRemote = !part.url.startsWith("data:");
      return `*[picture]*${isRemote ? ` <${part.url.replace(/[\s<>]/g, encodeURIComponent)}>` : ""}`;
    }
    case "reasoning": return part.text && `*Reasoning*\n\n${quoted(part.text)}`;
    case "tool_call": return `*Calls \`${part.name}\`*\n\n${fenced(part.arguments, "json")}`;
    case "tool_result": return fenced(part.output, "text");
    default: return "";
  }
}

/** @param {string} text */
function quoted(text) {
  return text.trim().split("\n").map((line) => `> ${line}`.trimEnd()).join("\n");
}

/**
 * Fences a text with more backticks than it has in a row.
 * @param {string} text
 * @param {string} language
 */
function fenced(text, language) {
  let longest = 2;
  for (const [run] of text.matchAll(/`+/g)) longest = Math.max(longest, run.length);
  const fence = "`".repeat(longest + 1);
  return `${fence}${language}\n${text}\n${fence}`;
}

/**
 * Closes a fence that a text leaves open, so that what follows is not taken for code.
 * @param {string} text
 */
function closed(text) {
  let open = null;
  for (const line of text.split("\n")) {
    const [, before = "", fence = "", rest = ""] = FENCE.exec(line) ?? [];
    if (fence === "") continue;
    if (open === null) open = fence[0] === "`" && rest.includes("`") ? null : { indent: before.length, fence };
    else if (fence.startsWith(open.fence) && rest.trim() === "" && before.length <= open.indent + 3) open = null;
  }
  return open === null ? text : `${text.trimEnd()}\n${" ".repeat(open.indent)}${open.fence}`;
}

/**
 * Returns the name of the file, with the date where the reader is.
 * @param {string} name
 * @param {Format} format
 */
export function fileName(name, format) {
  const plain = name.replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-+|-+$/g, "").slice(0, 60) || "chat";
  const now = new Date();
  const parts = [now.getFullYear(), now.getMonth() + 1, now.getDate()];
  const day = parts.map((part) => String(part).padStart(2, "0")).join("-");
  return `${plain}-${day}.${format === "json" ? "json" : "md"}`;
}
