/**
 * Finds the tokens of code in common languages: comments, strings, numbers, keywords and names of fields. It knows
 * words and brackets, not grammars, and what it does not know stays plain. Pure, except for `paint`.
 *
 * @typedef {"comment" | "string" | "number" | "keyword" | "name"} Kind
 * @typedef {{ kind: Kind, from: number, to: number }} Token
 */

/** Maximum characters of a block that is coloured: a longer one would hold up the page. */
const CHARS_MAX = 30_000;

/** The end of the text: with the flag `m`, `$` is the end of a line. */
const END = "(?![\\s\\S])";
const C_COMMENT = `\\/\\/[^\\n]*|\\/\\*[\\s\\S]*?(?:\\*\\/|${END})`;
const HASH_COMMENT = "(?<=^|\\s)#[^\\n]*";
const QUOTED = "\"(?:\\\\.|[^\"\\\\\\n])*\"?|'(?:\\\\.|[^'\\\\\\n])*'?";
/** Rust's lifetimes are no strings. */
const RUST_QUOTED = "\"(?:\\\\[\\s\\S]|[^\"\\\\])*\"?|'(?:\\\\.[^']*|[^'\\\\\\n])'";
const NUMBER = "\\b(?:0[xob][\\da-f_]+|\\d[\\d_]*(?:\\.\\d+)?(?:e[+-]?\\d+)?)\\w*\\b";
/** It begins at the first character of a word: tried at each one, a long word would take quadratic time. */
const KEY = "(?<![\\w$-])[\\w$-]+(?=\\s*:(?!:))";

const JS = "as async await break case catch class const continue default delete do else enum export extends false finally for from function get if implements import in instanceof interface let new null of private protected public readonly return set static super switch this throw true try type typeof undefined var void while yield";
const C = "abstract auto bool boolean break byte case catch char class const continue default delete do double else enum extends extern false final finally float for foreach func go goto if implements import in include inline int interface internal let long map namespace new nil null nullptr operator out override package private protected public range return short signed sizeof static string struct super switch template this throw throws true try type typedef typename union unsigned using var virtual void volatile while";

/**
 * @typedef {object} Language
 * @property {string} comment
 * @property {string} string
 * @property {string} [name]
 * @property {string} keywords
 * @property {boolean} [anyCase] whether keywords are written in any case
 */

/** @type {Language} */
const JSON_LIKE = { comment: C_COMMENT, string: QUOTED, name: "\"(?:\\\\.|[^\"\\\\\\n])*\"(?=\\s*:)", keywords: "true false null" };

/** @type {[string, Language][]} names and aliases, and how each is written */
const LANGUAGES = [
  ["js javascript mjs cjs jsx ts typescript tsx", { comment: C_COMMENT, string: `${QUOTED}|\`(?:\\\\[\\s\\S]|[^\`\\\\])*\`?`, keywords: JS }],
  ["json jsonc json5", JSON_LIKE],
  ["c h cpp c++ cc hpp cs csharp java kotlin kt swift go golang dart php scala", { comment: C_COMMENT, string: `${QUOTED}|\`[^\`]*\`?`, keywords: C }],
  ["rust rs", { comment: C_COMMENT, string: RUST_QUOTED, keywords: "as async await break const continue crate dyn else enum extern false fn for if impl in let loop match mod move mut pub ref return self Self static struct super trait true type unsafe use where while" }],
  ["python py", { comment: HASH_COMMENT, string: `"""[\\s\\S]*?(?:"""|${END})|'''[\\s\\S]*?(?:'''|${END})|${QUOTED}`, keywords: "and as assert async await break class continue def del elif else except False finally for from global if import in is lambda match None nonlocal not or pass raise return self True try while with yield" }],
  ["ruby rb", { comment: HASH_COMMENT, string: QUOTED, keywords: "and begin break case class def do else elsif end ensure false for if in module next nil not or redo rescue return self super then true unless until when while yield require" }],
  ["sh bash shell zsh console dockerfile make makefile", { comment: HASH_COMMENT, string: QUOTED, keywords: "case do done elif else esac export fi for function if in local return set then unset until while FROM RUN COPY CMD ENV WORKDIR EXPOSE ENTRYPOINT" }],
  ["sql", { comment: `--[^\\n]*|\\/\\*[\\s\\S]*?(?:\\*\\/|${END})`, string: "'(?:''|[^'])*'?", anyCase: true, keywords: "add alter and as asc begin between by case check commit constraint create cross default delete desc distinct drop else end exists false foreign from full group having if in index inner insert into is join key left like limit not null offset on or order outer primary references returning right rollback select set table then true union unique update using values view when where with" }],
  ["css scss less", { comment: C_COMMENT, string: QUOTED, name: KEY, keywords: "important media import from to supports container layer" }],
  ["yaml yml", { comment: HASH_COMMENT, string: QUOTED, name: KEY, keywords: "true false null yes no on off" }],
  ["toml ini", { comment: HASH_COMMENT, string: QUOTED, name: "^[\\w.-]+(?=\\s*=)|^\\[[^\\]\\n]*\\]", keywords: "true false" }],
  ["html xml svg vue", { comment: `<!--[\\s\\S]*?(?:-->|${END})`, string: "(?<==)(?:\"[^\"]*\"?|'[^']*'?)", name: "<\\/?[\\w:-]+|\\/?>", keywords: "" }],
];

/** @type {Map<string, { pattern: RegExp, keywords: Set<string>, anyCase: boolean }>} by name, made when first used */
const known = new Map();

/** @param {string} language */
function rules(language) {
  const name = language.toLowerCase().split(/[^\w+#]/)[0];
  const made = known.get(name);
  const found = made ? undefined : LANGUAGES.find(([names]) => names.split(" ").includes(name))?.[1];
  if (!found) return made;
  const parts = [`(?<comment>${found.comment})`, ...(found.name ? [`(?<name>${found.name})`] : []), `(?<string>${found.string})`, `(?<number>${NUMBER})`, "(?<word>[A-Za-z_$][\\w$]*)"];
  const fresh = { pattern: new RegExp(parts.join("|"), "gim"), keywords: new Set(found.keywords.split(" ")), anyCase: found.anyCase ?? false };
  known.set(name, fresh);
  return fresh;
}

/**
 * Returns the tokens that have a colour, in order; none for an unknown language.
 * @param {string} text
 * @param {string} language as the model named it
 * @returns {Token[]}
 */
export function tokensOf(text, language) {
  const found = rules(language);
  if (!found || text.length > CHARS_MAX) return [];
  /** @type {Token[]} */
  const tokens = [];
  for (const { index, 0: all, groups = {} } of text.matchAll(found.pattern)) {
    const { word } = groups;
    const isKeyword = word !== undefined && found.keywords.has(found.anyCase ? word.toLowerCase() : word);
    const kind = word === undefined ? /** @type {Kind | undefined} */ (Object.keys(groups).find((name) => groups[name] !== undefined)) : isKeyword ? "keyword" : undefined;
    if (kind && all !== "") tokens.push({ kind, from: index, to: index + all.length });
  }
  return tokens;
}

/** @type {Map<Text, [Kind, StaticRange][]>} what is coloured */
const painted = new Map();

/**
 * Colours a text of code. The text's nodes stay as they are: the browser paints ranges of them.
 * @param {Text} text
 * @param {string} language
 */
export function paint(text, language) {
  for (const [other, ranges] of painted) {
    if (other.isConnected && other !== text) continue;
    for (const [kind, range] of ranges) CSS.highlights.get(`code-${kind}`)?.delete(range);
    painted.delete(other);
  }
  /** @type {[Kind, StaticRange][]} */
  const ranges = tokensOf(text.data, language).map(({ kind, from, to }) =>
    [kind, new StaticRange({ startContainer: text, startOffset: from, endContainer: text, endOffset: to })]);
  for (const [kind, range] of ranges) {
    const name = `code-${kind}`;
    const highlight = CSS.highlights.get(name) ?? new Highlight();
    highlight.add(range);
    CSS.highlights.set(name, highlight);
  }
  painted.set(text, ranges);
}
