/**
 * Renders a model's Markdown. Every node is made by `createElement` and filled by `textContent`: no text can become
 * live HTML, and only `http:`, `https:` and `mailto:` links can be followed.
 *
 * @typedef {import("./markdown-blocks.js").Block} Block
 * @typedef {import("./markdown-blocks.js").PlacedBlock} PlacedBlock
 * @typedef {import("./markdown-inline.js").Inline} Inline
 *
 * @typedef {{ left: number }} Budget Elements that a text may still become; the remaining text is shown as it is.
 */

import { el, iconButton } from "./dom.js";
import { parseBlocks } from "./markdown-blocks.js";
import { inlineText, parseInline } from "./markdown-inline.js";
import { patchChildren } from "./patch.js";

/** In UTF-16 code units. A longer text is shown as it is: its many nodes would make the page slow. */
const CHARS_MAX = 400_000;
/** Maximum elements of one text, give or take a few. An ordinary answer has some hundred. */
export const ELEMENTS_MAX = 5000;
/**
 * A table cell longer than this, in characters, is wide enough for a few words; the table scrolls instead of narrowing
 * it.
 */
const LONG_CELL_CHARS = 24;

/**
 * Renders a growing text. Blocks that can no longer change stay untouched; in the last block only the differences are
 * rebuilt.
 */
export class MarkdownView {
  /** @param {HTMLElement} root */
  constructor(root) {
    this.root = root;
    this.text = "";
    /** The start of the blocks that may still change, in the text and among the root's children. */
    this.settled = { chars: 0, nodes: 0, elements: 0 };
    /** @type {Text | null} the text node of a code block that is still open at the end */
    this.openCode = null;
  }

  /** @param {string} text the whole text, which starts with what was shown before */
  update(text) {
    if (text === this.text) return;
    if (!text.startsWith(this.text)) this.reset();
    const added = text.slice(this.text.length);
    this.text = text;
    if (text.length > CHARS_MAX) {
      this.root.replaceChildren(el("pre", { class: "plain" }, text));
      this.settled = { chars: 0, nodes: 0, elements: 0 };
      this.openCode = null;
      return;
    }
    if (this.openCode && !/[`~\r\0]/.test(added)) {
      this.openCode.appendData(added);
      return;
    }
    const tail = text.slice(this.settled.chars);
    const blocks = parseBlocks(tail);
    const { nodes, counts } = render(blocks, tail, ELEMENTS_MAX - this.settled.elements);
    patchChildren(this.root, nodes, this.settled.nodes);
    this.openCode = nodes.length === blocks.length ? openCodeText(this.root, blocks, tail) : null;
    if (nodes.length === blocks.length) this.settle(blocks, tail, counts);
  }

  reset() {
    this.root.replaceChildren();
    this.settled = { chars: 0, nodes: 0, elements: 0 };
    this.openCode = null;
    this.text = "";
  }

  /**
   * Once the last block's first line is complete, the blocks before it are final.
   * @param {PlacedBlock[]} blocks
   * @param {string} tail
   * @param {number[]} counts number of elements of each block
   */
  settle(blocks, tail, counts) {
    const last = blocks[blocks.length - 1];
    if (blocks.length < 2 || tail.includes("\r")) return;
    const start = lineStart(tail, last.line);
    if (!tail.includes("\n", start)) return;
    const elements = counts.slice(0, -1).reduce((sum, count) => sum + count, this.settled.elements);
    this.settled = { chars: this.settled.chars + start, nodes: this.settled.nodes + blocks.length - 1, elements };
  }
}

/**
 * Renders a complete text.
 * @param {string} text
 * @returns {HTMLElement}
 */
export function markdown(text) {
  const root = el("div", { class: "markdown" });
  new MarkdownView(root).update(text);
  return root;
}

/**
 * @param {string} text
 * @param {number} line
 */
function lineStart(text, line) {
  let at = 0;
  for (let count = 0; count < line; count += 1) at = text.indexOf("\n", at) + 1;
  return at;
}

/**
 * Returns the text node of an unfinished code block at the end to which text can simply be appended.
 * @param {HTMLElement} root
 * @param {PlacedBlock[]} blocks
 * @param {string} tail
 * @returns {Text | null}
 */
function openCodeText(root, blocks, tail) {
  const last = blocks[blocks.length - 1];
  // Lines of an indented fence lose their indentation, so they cannot be appended as they come. The line break after
  // the opening fence is not part of the code, so an empty block is parsed again.
  if (last?.type !== "code" || !last.open || last.text === "" || !tail.endsWith(last.text) || tail[lineStart(tail, last.line)] === " ") return null;
  const text = root.lastElementChild?.querySelector("code")?.firstChild;
  return text?.nodeType === Node.TEXT_NODE ? /** @type {Text} */ (text) : null;
}

/**
 * Renders the blocks of a text; once the budget is used up, the rest of the text is shown as it is.
 * @param {PlacedBlock[]} blocks
 * @param {string} text
 * @param {number} elements
 */
function render(blocks, text, elements) {
  /** @type {HTMLElement[]} */
  const nodes = [];
  /** @type {number[]} */
  const counts = [];
  const budget = { left: elements };
  for (const block of blocks) {
    const { left } = budget;
    if (left <= 0) {
      nodes.push(plain(text.slice(lineStart(text, block.line))));
      break;
    }
    nodes.push(renderBlock(block, budget));
    counts.push(left - budget.left);
  }
  return { nodes, counts };
}

/** @param {string} text */
function plain(text) {
  return el("pre", { class: "plain" }, text);
}

/**
 * @param {Block} block
 * @param {Budget} budget
 * @returns {HTMLElement}
 */
function renderBlock(block, budget) {
  budget.left -= 1;
  switch (block.type) {
    case "paragraph": return el("p", {}, inline(block.text, budget));
    // The page's own headings are h1 and h2. Most texts start with a second-level heading.
    case "heading": return el(/** @type {"h3"} */ (`h${Math.min(6, Math.max(3, block.level + 1))}`), {}, inline(block.text, budget));
    case "code": return codeBlock(block.language, block.text, budget);
    case "math": return el("div", { class: "math", tabindex: 0, role: "math", "aria-label": block.text }, block.text);
    case "rule": return el("hr");
    case "quote": return el("blockquote", {}, renderAll(block.blocks, budget));
    case "list": return list(block, budget);
    case "table": return table(block, budget);
  }
}

/**
 * @param {Block[]} blocks
 * @param {Budget} budget
 */
function renderAll(blocks, budget) {
  const nodes = [];
  for (const [index, block] of blocks.entries()) {
    if (budget.left <= 0) {
      nodes.push(plain(blocks.slice(index).map(textOf).join("\n")));
      break;
    }
    nodes.push(renderBlock(block, budget));
  }
  return nodes;
}

/**
 * Returns the text of a block without its markup.
 * @param {Block} block
 * @returns {string}
 */
function textOf(block) {
  switch (block.type) {
    case "rule": return "";
    case "quote": return block.blocks.map(textOf).join("\n");
    case "list": return block.items.map((item) => item.map(textOf).join("\n")).join("\n");
    case "table": return block.rows.map((row) => row.join(" | ")).join("\n");
    default: return block.text;
  }
}

/**
 * @param {string} language
 * @param {string} text
 * @param {Budget} budget
 */
function codeBlock(language, text, budget) {
  budget.left -= 8;
  const code = el("code", {}, text);
  const copy = iconButton("copy", "Copy code", () => void navigator.clipboard?.writeText(code.textContent ?? ""));
  const head = el("figcaption", {}, el("span", {}, language || "text"), copy);
  return el("figure", { class: "code" }, head, el("pre", { tabindex: 0 }, code));
}

/**
 * @param {import("./markdown-blocks.js").List} block
 * @param {Budget} budget
 */
function list({ ordered, start, loose, items, checks }, budget) {
  const rows = [];
  for (const [index, blocks] of items.entries()) {
    if (budget.left <= 0) {
      rows.push(el("li", {}, plain(items.slice(index).map((item) => item.map(textOf).join("\n")).join("\n"))));
      break;
    }
    budget.left -= 1;
    const [first, ...more] = blocks;
    const tight = first?.type === "paragraph" && !loose;
    const check = checks[index];
    const box = check !== null && el("input", { type: "checkbox", disabled: true, checked: check, "aria-label": check ? "Done" : "To do" });
    const text = tight && inline(first.text, budget);
    const beginning = text && (more.length > 0 ? el("span", {}, text) : text);
    rows.push(el("li", { class: check !== null && "task" }, box, beginning || null, renderAll(tight ? more : blocks, budget)));
  }
  return ordered ? el("ol", { start: start === 1 ? null : start }, rows) : el("ul", {}, rows);
}

/**
 * @param {import("./markdown-blocks.js").Table} block
 * @param {Budget} budget
 */
function table({ align, rows }, budget) {
  const row = (/** @type {string[]} */ cells, /** @type {"th" | "td"} */ tag) => {
    const missing = align.length - cells.length;
    budget.left -= 1 + cells.length + (missing > 0 ? 1 : 0);
    return el("tr", {}, cells.map((cell, column) => {
      const classes = [align[column] && `align-${align[column]}`, cell.length > LONG_CELL_CHARS && "long"].filter(Boolean).join(" ");
      return el(tag, { scope: tag === "th" ? "col" : null, class: classes || null }, inline(cell, budget));
    }), missing > 0 && el(tag, { colspan: missing > 1 ? missing : null }));
  };
  const [header, ...body] = rows;
  const head = el("thead", {}, row(header, "th"));
  const lines = [];
  for (const [index, cells] of body.entries()) {
    if (budget.left <= 0) {
      lines.push(el("tr", {}, el("td", { colspan: align.length }, plain(body.slice(index).map((rest) => rest.join(" | ")).join("\n")))));
      break;
    }
    lines.push(row(cells, "td"));
  }
  return el("div", { class: "table", tabindex: 0, role: "group", "aria-label": "Table" }, el("table", {}, head, el("tbody", {}, lines)));
}

/**
 * @param {string} text
 * @param {Budget} budget
 * @returns {Node[]}
 */
function inline(text, budget) {
  return budget.left <= 0 ? [document.createTextNode(text)] : inlineNodes(parseInline(text), budget);
}

/**
 * @param {Inline[]} nodes
 * @param {Budget} budget
 * @returns {Node[]}
 */
function inlineNodes(nodes, budget) {
  return nodes.map((node) => renderInline(node, budget));
}

/**
 * @param {Inline} node
 * @param {Budget} budget
 * @returns {Node}
 */
function renderInline(node, budget) {
  if (node.type === "text" || budget.left <= 0) return document.createTextNode(inlineText(node));
  budget.left -= 1;
  switch (node.type) {
    case "code": return el("code", {}, node.text);
    case "math": return el("span", { class: "math" }, node.text);
    case "break": return el("br");
    case "strong": return el("strong", {}, inlineNodes(node.children, budget));
    case "emphasis": return el("em", {}, inlineNodes(node.children, budget));
    case "deleted": return el("del", {}, inlineNodes(node.children, budget));
    case "link": {
      const attributes = { href: node.href, rel: "noopener noreferrer", target: "_blank" };
      return el("a", attributes, inlineNodes(node.children, budget));
    }
  }
}
