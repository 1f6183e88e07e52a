/**
 * Compares, message by message, what the model sees before and after a compaction. Pure.
 *
 * @typedef {import("reseed-protocol").ContextMessage} ContextMessage
 * @typedef {import("reseed-protocol").CompactionPreview} CompactionPreview
 * @typedef {import("reseed-protocol").Part} Part
 *
 * @typedef {"goes" | "stays" | "shortened"} Fate
 *
 * @typedef {object} Row A message in short form.
 * @property {"summary" | "user" | "assistant" | "tool"} who
 * @property {string} text one line
 * @property {Fate} fate
 * @property {boolean} pinned
 *
 * @typedef {{ skipped: number }} Gap Messages left out because there are too many rows.
 */

import { unmarked } from "./tree.js";

/** Characters of a message shown in its row. */
const ROW_CHARS = 160;
/** Maximum rows per column; of more, only those at both ends are shown. */
export const ROWS_MAX = 120;

/**
 * @param {ContextMessage[]} messages what the model sees now, in order
 * @param {CompactionPreview} preview
 * @param {object} known
 * @param {(entryId: string) => boolean} known.isSummary whether an entry is a compaction
 * @param {(entryId: string) => boolean} known.isPinned
 * @param {string[]} known.cleared entries whose tool results are already shortened
 * @returns {{ now: Row[], then: Row[] }} `then` lacks the new summary, which comes first
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
    // A message without an entry stands for the missing result of a call and shares the call's fate.
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
 * Returns the rows at both ends, with a gap that counts those between them.
 * @param {Row[]} rows
 * @returns {(Row | Gap)[]}
 */
export function ends(rows) {
  if (rows.length <= ROWS_MAX) return rows;
  const half = ROWS_MAX / 2;
  return [...rows.slice(0, half), { skipped: rows.length - ROWS_MAX }, ...rows.slice(-half)];
}

/**
 * Renders a message as one line.
 * @param {Part[]} content
 * @param {boolean} isSummary for a summary, the introduction addressed to the model is left out
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
 * Returns the beginning of the summary inside a message.
 * @param {string} text
 */
function summaryOf(text) {
  const begin = /^<summary>$/m.exec(text)?.index ?? 0;
  return unmarked(text.slice(begin, begin + 4 * ROW_CHARS));
}
