/**
 * Text that a person decides about: nothing in it may hide, or turn the reading direction. Pure; the server's rules
 * (`core/approval/visible.rs`).
 */

/** Characters that cannot be seen, or that change the order in which others are shown. Tabs and line ends show. */
const HIDES = /(?![\n\t])[\p{Cc}\u00a0\u00ad\u034f\u061c\u115f-\u1160\u1680\u17b4-\u17b5\u180b-\u180f\u2000-\u200f\u2028-\u202f\u205f-\u206f\u2800\u3000\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\u{1bca0}-\u{1bca3}\u{1d173}-\u{1d17a}\u{e0000}-\u{e0fff}]/gu;

/** Words of a command line that mean themselves. */
const PLAIN_WORD = /^[\w@%+=:,./-]+$/;

/**
 * Writes every character that cannot be seen as `⟨U+202E⟩`.
 * @param {string} text
 */
export function visible(text) {
  return text.replace(HIDES, (found) => `⟨U+${(found.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, "0")}⟩`);
}

/**
 * JSON in lines, if they say exactly the same: an object with a name that occurs twice, or a number that JavaScript
 * cannot hold, stays as it is written. So does what is not JSON.
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
 * A command line in one line. Words that do not mean themselves are quoted as in JSON.
 * @param {readonly string[]} words
 */
export function commandLine(words) {
  return visible(words.map((word) => (PLAIN_WORD.test(word) ? word : JSON.stringify(word))).join(" "));
}
