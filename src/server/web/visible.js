/**
 * Renders text that a person must judge: nothing in it may hide or change the reading direction. Pure. The rules are
 * those of the server (`core/approval/visible.rs`).
 */

/** Characters that are invisible or change the display order of others. Tabs and line ends stay as they are. */
const HIDES = /(?![\n\t])[\p{Cc}\u00a0\u00ad\u034f\u061c\u115f-\u1160\u1680\u17b4-\u17b5\u180b-\u180f\u2000-\u200f\u2028-\u202f\u205f-\u206f\u2800\u3000\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\u{1bca0}-\u{1bca3}\u{1d173}-\u{1d17a}\u{e0000}-\u{e0fff}]/gu;

/** Command-line words that need no quoting. */
const PLAIN_WORD = /^[\w@%+=:,./-]+$/;

/**
 * Writes every invisible character as `⟨U+202E⟩`.
 * @param {string} text
 */
export function visible(text) {
  return text.replace(HIDES, (found) => `⟨U+${(found.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, "0")}⟩`);
}

/**
 * Indents JSON, provided that the meaning stays exactly the same. An object with a duplicate name or a number that
 * JavaScript cannot hold stays as written. So does anything that is not JSON.
 * @param {string} text
 */
export function indented(text) {
  try {
    const value = JSON.parse(text);
    const compact = text.replace(/"(?:[^"\\]|\\.)*"|\s+/g, (found) => (found.startsWith("\"") ? JSON.stringify(JSON.parse(found)) : ""));
    return visible(JSON.stringify(value) === compact ? JSON.stringify(value, null, 2) : text);
  } catch {
    return visible(text);
  }
}

/**
 * Writes a command line in one line. Words that need quoting are quoted as in JSON.
 * @param {readonly string[]} words
 */
export function commandLine(words) {
  return visible(words.map((word) => (PLAIN_WORD.test(word) ? word : JSON.stringify(word))).join(" "));
}
