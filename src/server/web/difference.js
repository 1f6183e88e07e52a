/**
 * What a compaction would change of what the model sees, message by message. Pure.
 *
 * @typedef {import("reseed-protocol").ContextMessage} ContextMessage
 * @typedef {import("reseed-protocol").CompactionPreview} CompactionPreview
 * @typedef {import("reseed-protocol").Part} Part
 *
 * @typedef {"goes" | "stays" | "shortened"} Fate
 *
 * @typedef {object} Row A message in short.
 * @property {"summary" | "user" | "assistant" | "tool"} who
 * @property {string} text one line
 * @property {Fate} fate
 * @property {boolean} pinned
 *
 * @typedef {{ skipped: number }} Gap Messages that are not shown, since there are so many.
 */

import { unmarked } from "./tree.js";

/** Characters of a message that stand for it. */
const ROW_CHARS = 160;
/** Rows of a column; of more, those at both ends are shown. */
export const ROWS_MAX = 120;

/**
 * @param {ContextMessage[]} messages what the model sees now, in order
 * @param {CompactionPreview} preview
 * @param {object} known
 * @param {(entryId: string) => boolean} known.isSummary whether an entry is a compaction
 * @param {(entryId: string) => boolean} known.isPinned
 * @param {string[]} known.cleared entries whose tool results are cut already
 * @returns {{ now: Row[], then: Row[] }} `then` without the new summary, which stands first
 */
export function difference(messages, preview, { isSummary, isPinned, cleared }) {
  const oneByOne = new Set(preview.keptEntryIds);
  const shortened = new Set(preview.clearedEntryIds ?? []);
  for (const entryId of cleared) shortened.delete(entryId);
  let inTail = false;
  /** @type {Fate} */
  let fate = "goes";
  /** @type {Row[]} */
  const now = [];
  for (const { entryId, message } of messages) {
    const summary = entryId !== undefined && isSummary(entryId);
    // A message without an entry stands for the missing answer to a call, and goes the way of the call.
    if (entryId !== undefined) {
      inTail ||= entryId === preview.firstKeptEntryId;
      const stays = summary ? preview.rung === "clear_tool_results" : inTail || oneByOne.has(entryId);
      fate = !stays ? "goes" : shortened.has(entryId) ? "shortened" : "stays";
    }
    const pinned = entryId !== undefined && isPinned(entryId);
    now.push({ who: summary ? "summary" : message.role, text: inShort(message.content, summary), fate, pinned });
  }
  return { now, then: now.filter((row) => row.fate !== "goes") };
}

/**
 * The rows at both ends, and how many are left out between them.
 * @param {Row[]} rows
 * @returns {(Row | Gap)[]}
 */
export function ends(rows) {
  if (rows.length <= ROWS_MAX) return rows;
  const half = ROWS_MAX / 2;
  return [...rows.slice(0, half), { skipped: rows.length - ROWS_MAX }, ...rows.slice(-half)];
}

/**
 * A message on one line.
 * @param {Part[]} content
 * @param {boolean} isSummary whether it is a summary: then what introduces that to the model is left out
 */
function inShort(content, isSummary) {
  const words = content.map((part) => {
    switch (part.type) {
      case "text": return isSummary ? summaryOf(part.text) : part.text.slice(0, 4 * ROW_CHARS);
      case "image": return "[picture]";
      case "reasoning": return "";
      case "tool_call": return `[calls ${part.name}]`;
      case "tool_result": return part.output.slice(0, 4 * ROW_CHARS);
      default: return "";
    }
  });
  const line = words.join(" ").replace(/\s+/g, " ").trim();
  return line.length > ROW_CHARS ? `${line.slice(0, ROW_CHARS)}…` : line;
}

/**
 * The beginning of the summary in a message.
 * @param {string} text
 */
function summaryOf(text) {
  const begin = /^<summary>$/m.exec(text)?.index ?? 0;
  return unmarked(text.slice(begin, begin + 4 * ROW_CHARS));
}
