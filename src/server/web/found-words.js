/**
 * Locates the words of a search in an excerpt by the rules of the server's search: whole words, `"phrases"` and
 * `beginnings*`, ignoring case and accents. Pure.
 *
 * @typedef {{ words: string[], isBeginning: boolean }} Term consecutive words
 * @typedef {{ text: string, isFound: boolean }} Piece
 * @typedef {{ word: string, from: number, to: number }} Word with its position in the text
 */

/** Maximum terms of a search, as on the server; further ones are ignored. */
const TERMS_MAX = 16;

/** Scripts without spaces between words: each letter counts as a word, so any part of a run is found. */
const DENSE = "\\p{Script=Han}\\p{Script=Hiragana}\\p{Script=Katakana}\\p{Script=Hangul}\\p{Script=Thai}\\p{Script=Lao}\\p{Script=Myanmar}\\p{Script=Khmer}";
const WORD = new RegExp(`[${DENSE}]|(?:(?![${DENSE}])[\\p{Alphabetic}\\p{N}\\u0300-\\u036f])+`, "gu");
const DENSE_LETTER = new RegExp(`[${DENSE}]`, "u");

/**
 * @param {string} text
 * @returns {Word[]}
 */
function wordsOf(text) {
  return [...text.matchAll(WORD)].map((found) => ({ word: folded(found[0]), from: found.index, to: found.index + found[0].length }))
    .filter(({ word }) => word !== "");
}

/**
 * Folds a word: lower case, no accents. It goes through upper case, which has one form where lower case has two (`ς`
 * and `σ`).
 * @param {string} word
 */
function folded(word) {
  return word.normalize("NFKD").replace(/[\u0300-\u036f]/g, "").toUpperCase().toLowerCase();
}

/**
 * Parses a search. Empty if it contains no word, in which case nothing can be found.
 * @param {string} query
 * @returns {Term[]}
 */
export function termsOf(query) {
  /** @type {Term[]} */
  const terms = [];
  for (const [, phrase, open, word, star] of query.matchAll(/(?:["“”]([^"“”]*)["“”]|["“”]([^"“”]*)$|([^\s"“”]+))(\*?)/g)) {
    const text = phrase ?? open ?? word ?? "";
    const words = wordsOf(text).map((one) => one.word);
    // A letter of such a script matches anything that starts with it.
    if (words.length > 0) terms.push({ words, isBeginning: star === "*" || text.endsWith("*") || DENSE_LETTER.test(words.at(-1) ?? "") });
  }
  return terms.slice(0, TERMS_MAX);
}

/**
 * Splits an excerpt into pieces that match the search and pieces between them.
 * @param {string} excerpt
 * @param {readonly Term[]} terms
 * @returns {Piece[]} concatenated, they are the excerpt
 */
export function found(excerpt, terms) {
  const words = wordsOf(excerpt);
  const marks = new Array(words.length).fill(false);
  /** @type {Set<number>} words whose gap to the next word belongs to a phrase */
  const joined = new Set();
  words.forEach((_, start) => {
    for (const term of terms) {
      const last = term.words.length - 1;
      const fits = term.words.every((want, at) => {
        const word = words[start + at]?.word ?? "";
        return at === last && term.isBeginning ? word.startsWith(want) : word === want;
      });
      if (!fits) continue;
      for (let at = start; at <= start + last; at += 1) {
        marks[at] = true;
        if (at < start + last) joined.add(at);
      }
    }
  });
  /** @type {Piece[]} */
  const pieces = [];
  const add = (/** @type {string} */ text, /** @type {boolean} */ isFound) => {
    const before = pieces.at(-1);
    if (text === "") return;
    if (before?.isFound === isFound) before.text += text;
    else pieces.push({ text, isFound });
  };
  let end = 0;
  words.forEach(({ from, to }, index) => {
    if (!marks[index]) return;
    add(excerpt.slice(end, from), joined.has(index - 1));
    add(excerpt.slice(from, to), true);
    end = to;
  });
  add(excerpt.slice(end), false);
  return pieces;
}
