/**
 * Parses the inline content of Markdown: emphasis, code, formulas, links and line breaks, as plain data.
 *
 * Invariants:
 * - any text parses and nothing of it is lost; whatever is not markup is text, HTML included;
 * - a link's address is `http:`, `https:` or `mailto:` with the scheme written out; any other link is text;
 * - images become links to them: the page loads nothing from elsewhere;
 * - a formula keeps its delimiters and backslashes;
 * - only the beginning of a long text is parsed and the rest is text, so the number of nodes is bounded.
 *
 * @typedef {{ type: "text", text: string }} Text
 * @typedef {{ type: "code", text: string }} CodeSpan
 * @typedef {{ type: "math", text: string }} Math
 * @typedef {{ type: "break" }} Break
 * @typedef {{ type: "link", href: string, children: Inline[] }} Link
 * @typedef {{ type: "strong" | "emphasis" | "deleted", children: Inline[] }} Styled
 * @typedef {Text | CodeSpan | Math | Break | Link | Styled} Inline
 *
 * @typedef {object} Run A run of emphasis delimiters that may still open or close something.
 * @property {"*" | "_" | "~"} mark
 * @property {number} count delimiters left
 * @property {boolean} opens
 * @property {boolean} closes
 */

import { referenceAt, withoutReferences } from "./markdown-entities.js";

/**
 * Maximum characters parsed of one paragraph, heading or cell. No prose is longer, and a growing text is parsed again
 * each time.
 */
export const INLINE_CHARS_MAX = 16_384;
/** Maximum characters of an inline formula. */
const MATH_CHARS_MAX = 1000;
/** Maximum characters of a link's address. Longer ones are text. */
const ADDRESS_CHARS_MAX = 2000;
/** Links and emphasis nested deeper than this are text: the page's own tree must stay shallow. */
const DEPTH_MAX = 16;

const SPECIAL = /[\\`*_~[\]!<&$\n]|https?:\/\//g;
/** What makes `$…$` a formula rather than two amounts of money. */
const MATHS = /[\\^_={}<>+]|^[A-Za-z]\w{0,2}$/;
const PUNCTUATION = /[!-/:-@[-`{-~]/;
const AUTOLINK = /^<((?:https?:\/\/|mailto:)[^\s<>]{1,2000})>/i;
const BARE = /^https?:\/\/[^\s<>"'`\\|]{1,2000}/i;

/**
 * Returns a link's normalised address, or null if it must not become a link.
 * @param {string} address
 * @returns {string | null}
 */
export function safeAddress(address) {
  if (!/^(?:https?:\/\/|mailto:)/i.test(address)) return null;
  try {
    const url = new URL(address);
    return ["http:", "https:", "mailto:"].includes(url.protocol) ? url.href : null;
  } catch {
    return null;
  }
}

/**
 * @param {string} text
 * @returns {Inline[]}
 */
export function parseInline(text) {
  if (text.length <= INLINE_CHARS_MAX) return new Scanner(text).scan();
  // Cutting a surrogate pair would show two broken characters.
  const end = isHighSurrogate(text.charCodeAt(INLINE_CHARS_MAX - 1)) ? INLINE_CHARS_MAX - 1 : INLINE_CHARS_MAX;
  return [...new Scanner(text.slice(0, end)).scan(), { type: "text", text: text.slice(end) }];
}

/** @param {number} code */
function isHighSurrogate(code) {
  return code >= 0xd800 && code <= 0xdbff;
}

class Scanner {
  /** @param {string} text */
  constructor(text) {
    this.text = text;
    this.at = 0;
    /** @type {(Inline | Run)[]} */
    this.nodes = [];
    /** @type {{ index: number, image: boolean }[]} positions of `[` in `nodes` */
    this.brackets = [];
    /** Brackets below this index of the stack already contain a link, and a link contains no links. */
    this.closedBelow = 0;
    /** @type {Map<number, { places: number[], next: number }>} start positions of backtick runs, by run length */
    this.ticks = backticks(text);
    /** @type {Map<string, number>} next position of each delimiter, as far as searched; -1: none */
    this.marks = new Map();
  }

  /** @returns {Inline[]} */
  scan() {
    const { text } = this;
    while (this.at < text.length) {
      SPECIAL.lastIndex = this.at;
      const found = SPECIAL.exec(text);
      const end = found ? found.index : text.length;
      if (end > this.at) this.push(text.slice(this.at, end));
      this.at = end;
      if (found) this.special(found[0]);
    }
    return tidy(resolve(this.nodes), 0);
  }

  /** @param {string} text */
  push(text) {
    this.nodes.push({ type: "text", text });
  }

  /** @param {string} mark */
  special(mark) {
    switch (mark) {
      case "\\": return this.escape();
      case "`": return this.code();
      case "*": case "_": case "~": return this.run(mark);
      case "[": return this.open(false);
      case "]": return this.close();
      case "!":
        if (this.text[this.at + 1] === "[") return this.open(true);
        return this.literal(1);
      case "<": return this.autolink();
      case "&": return this.reference();
      case "$": return this.dollars();
      case "\n":
        this.nodes.push({ type: "break" });
        this.at += 1;
        return;
      default: return this.bare();
    }
  }

  /** @param {number} count */
  literal(count) {
    this.push(this.text.slice(this.at, this.at + count));
    this.at += count;
  }

  escape() {
    const next = this.text[this.at + 1] ?? "";
    if (next === "(" && this.math("\\(", "\\)", () => true)) return;
    if (next === "[" && this.math("\\[", "\\]", (inner) => MATHS.test(inner.trim()))) return;
    this.at += 1;
    if (next === "\n") return;
    if (PUNCTUATION.test(next)) return this.literal(1);
    this.push("\\");
  }

  code() {
    const { text, at } = this;
    let count = 1;
    while (text[at + count] === "`") count += 1;
    const runs = this.ticks.get(count) ?? { places: [], next: 0 };
    while (runs.next < runs.places.length && runs.places[runs.next] <= at) runs.next += 1;
    const close = runs.places[runs.next];
    if (close === undefined) return this.literal(count);
    const inner = text.slice(at + count, close).replaceAll("\n", " ");
    const padded = inner.startsWith(" ") && inner.endsWith(" ") && inner.trim() !== "";
    this.nodes.push({ type: "code", text: padded ? inner.slice(1, -1) : inner });
    this.at = close + count;
  }

  reference() {
    const found = referenceAt(this.text, this.at);
    if (!found) return this.literal(1);
    this.push(found.text);
    this.at += found.length;
  }

  dollars() {
    const { text, at } = this;
    if (text[at + 1] === "$") {
      if (!this.math("$$", "$$", () => true)) this.literal(2);
      return;
    }
    const isMath = (/** @type {string} */ inner, /** @type {string} */ after) =>
      MATHS.test(inner) && !/^[\s{]|[\s\\]$/.test(inner) && !/\d/.test(after);
    if (!this.math("$", "$", isMath)) this.literal(1);
  }

  /**
   * Consumes a formula that starts here. Returns false if there is none.
   * @param {string} open
   * @param {string} close
   * @param {(inner: string, after: string) => boolean} isMath
   */
  math(open, close, isMath) {
    const { text, at } = this;
    const from = at + open.length;
    const end = this.find(close, from);
    if (end <= from || end - from > MATH_CHARS_MAX) return false;
    const inner = text.slice(from, end);
    if (!isMath(inner, text[end + close.length] ?? "")) return false;
    this.at = end + close.length;
    this.nodes.push({ type: "math", text: text.slice(at, this.at) });
    return true;
  }

  /**
   * Returns the next position of a delimiter. Each part of the text is searched for it only once.
   * @param {string} mark
   * @param {number} from
   */
  find(mark, from) {
    let place = this.marks.get(mark);
    if (place === undefined || (place >= 0 && place < from)) {
      place = this.text.indexOf(mark, from);
      this.marks.set(mark, place);
    }
    return place;
  }

  /** @param {"*" | "_" | "~"} mark */
  run(mark) {
    const { text, at } = this;
    let count = 1;
    while (text[at + count] === mark) count += 1;
    const before = text[at - 1] ?? " ";
    const after = text[at + count] ?? " ";
    const spaceBefore = /\s/.test(before);
    const spaceAfter = /\s/.test(after);
    const left = !spaceAfter && (!isPunctuation(after) || spaceBefore || isPunctuation(before));
    const right = !spaceBefore && (!isPunctuation(before) || spaceAfter || isPunctuation(after));
    const word = mark === "_";
    const opens = left && (!word || !right || isPunctuation(before));
    const closes = right && (!word || !left || isPunctuation(after));
    if (mark === "~" && count !== 2) return this.literal(count);
    this.nodes.push({ mark, count, opens, closes });
    this.at += count;
  }

  /** @param {boolean} image */
  open(image) {
    this.brackets.push({ index: this.nodes.length, image });
    this.literal(image ? 2 : 1);
  }

  close() {
    const bracket = this.brackets.pop();
    const isOpen = this.brackets.length >= this.closedBelow || bracket?.image;
    this.closedBelow = Math.min(this.closedBelow, this.brackets.length);
    const target = bracket && isOpen ? destination(this.text, this.at + 1) : null;
    const href = target && safeAddress(target.address);
    if (!bracket || !target || href === null) return this.literal(target ? target.end - this.at : 1);
    const inner = this.nodes.splice(bracket.index);
    this.at = target.end;
    const children = resolve(inner.slice(1));
    this.nodes.push({ type: "link", href, children: children.length > 0 ? children : [{ type: "text", text: href }] });
    if (!bracket.image) this.closedBelow = this.brackets.length;
  }

  autolink() {
    const found = AUTOLINK.exec(this.text.slice(this.at, this.at + ADDRESS_CHARS_MAX + 2));
    const href = found ? safeAddress(found[1]) : null;
    if (!found || href === null) return this.literal(1);
    this.nodes.push({ type: "link", href, children: [{ type: "text", text: found[1] }] });
    this.at += found[0].length;
  }

  bare() {
    const found = BARE.exec(this.text.slice(this.at, this.at + ADDRESS_CHARS_MAX));
    const address = found ? trimAddress(found[0]) : "";
    const inLink = this.brackets.slice(this.closedBelow).some((bracket) => !bracket.image);
    const href = inLink ? null : safeAddress(address);
    if (href === null) return this.literal(4);
    this.nodes.push({ type: "link", href, children: [{ type: "text", text: address }] });
    this.at += address.length;
  }
}

/**
 * Strips full stops, closing brackets and markup from the end of an address: they belong to the sentence.
 * @param {string} address
 */
function trimAddress(address) {
  let end = address.length;
  let surplus = 0;
  for (const char of address) surplus += char === ")" ? 1 : char === "(" ? -1 : 0;
  for (; end > 0; end -= 1) {
    const last = address[end - 1];
    if (last === ")" && surplus > 0) surplus -= 1;
    else if (!".,:;!?*_~]".includes(last)) break;
  }
  return address.slice(0, end);
}

/** @param {string} text */
function backticks(text) {
  /** @type {Map<number, { places: number[], next: number }>} */
  const runs = new Map();
  for (const run of text.matchAll(/`+/g)) {
    const known = runs.get(run[0].length) ?? { places: [], next: 0 };
    known.places.push(run.index);
    runs.set(run[0].length, known);
  }
  return runs;
}

/** @param {string} char */
function isPunctuation(char) {
  return PUNCTUATION.test(char) || /\p{P}|\p{S}/u.test(char);
}

/**
 * Parses the `(address "title")` after a link's text.
 * @param {string} text
 * @param {number} at
 * @returns {{ address: string, end: number } | null}
 */
function destination(text, at) {
  if (text[at] !== "(") return null;
  const rest = text.slice(at, at + ADDRESS_CHARS_MAX);
  const found = /^\(\s*(?:<([^<>\n]*)>|((?:[^\s()\\]|\\.|\((?:[^\s()\\]|\\.)*\))*))(?:\s+(?:"[^"]*"|'[^']*'))?\s*\)/.exec(rest);
  if (!found) return null;
  const address = withoutReferences((found[1] ?? found[2] ?? "").replace(/\\([!-/:-@[-`{-~])/g, "$1"));
  return { address, end: at + found[0].length };
}

/**
 * Pairs up runs of emphasis delimiters as CommonMark does; unpaired ones become text.
 * @param {(Inline | Run)[]} nodes
 * @returns {Inline[]}
 */
function resolve(nodes) {
  /** @type {(Inline | Run)[]} */
  const out = [];
  /** @type {Record<string, number>} index in `out` below which nothing opens what such a run closes */
  const bottoms = {};
  for (const node of nodes) {
    if ("mark" in node && node.closes) closeRun(out, node, bottoms);
    if (!("mark" in node) || node.count > 0) out.push(node);
  }
  return out.map(flatten);
}

/**
 * Wraps the parts at the end of `out` that this run closes.
 * @param {(Inline | Run)[]} out
 * @param {Run} closer
 * @param {Record<string, number>} bottoms
 */
function closeRun(out, closer, bottoms) {
  while (closer.count > 0) {
    const key = `${closer.mark}${closer.opens}${closer.count % 3}`;
    const bottom = Math.min(bottoms[key] ?? 0, out.length);
    let from = out.length - 1;
    while (from >= bottom && !opensFor(out[from], closer)) from -= 1;
    if (from < bottom) {
      bottoms[key] = out.length;
      return;
    }
    const opener = /** @type {Run} */ (out[from]);
    const used = opener.count >= 2 && closer.count >= 2 ? 2 : 1;
    const type = closer.mark === "~" ? "deleted" : used === 2 ? "strong" : "emphasis";
    const children = out.splice(from + 1).map(flatten);
    opener.count -= used;
    closer.count -= used;
    if (opener.count === 0) out.pop();
    out.push({ type, children });
  }
}

/**
 * @param {Inline | Run} node
 * @param {Run} closer
 */
function opensFor(node, closer) {
  if (!("mark" in node) || node.mark !== closer.mark || !node.opens) return false;
  if (!(node.closes || closer.opens)) return true;
  return (node.count + closer.count) % 3 !== 0 || (node.count % 3 === 0 && closer.count % 3 === 0);
}

/**
 * @param {Inline | Run} node
 * @returns {Inline}
 */
function flatten(node) {
  return "mark" in node ? { type: "text", text: node.mark.repeat(node.count) } : node;
}

/**
 * Joins adjacent texts, and turns into text what is nested too deeply.
 * @param {Inline[]} nodes
 * @param {number} depth
 * @returns {Inline[]}
 */
function tidy(nodes, depth) {
  /** @type {Inline[]} */
  const out = [];
  for (const node of nodes) {
    const last = out[out.length - 1];
    if (node.type === "text" && last?.type === "text") {
      last.text += node.text;
    } else if (node.type === "text") {
      if (node.text !== "") out.push({ ...node });
    } else if ("children" in node) {
      if (depth >= DEPTH_MAX) out.push({ type: "text", text: inlineText(node) });
      else out.push({ ...node, children: tidy(node.children, depth + 1) });
    } else {
      out.push(node);
    }
  }
  return out;
}

/**
 * Returns the text of a node without its markup. It avoids recursion, since deeply nested nodes end up here.
 * @param {Inline} node
 */
export function inlineText(node) {
  let text = "";
  const rest = [node];
  for (let next = rest.pop(); next; next = rest.pop()) {
    if ("children" in next) for (const child of next.children.toReversed()) rest.push(child);
    else if (next.type === "break") text += "\n";
    else text += next.text;
  }
  return text;
}
