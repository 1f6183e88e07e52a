/**
 * Shows a model's Markdown. Every node is made by `createElement` and filled by `textContent`: whatever the text says,
 * it cannot become live HTML, and only `http:`, `https:` and `mailto:` links can be followed.
 *
 * @typedef {import("./markdown-blocks.js").Block} Block
 * @typedef {import("./markdown-blocks.js").PlacedBlock} PlacedBlock
 * @typedef {import("./markdown-inline.js").Inline} Inline
 */

import { el, iconButton } from "./dom.js";
import { parseBlocks } from "./markdown-blocks.js";
import { parseInline } from "./markdown-inline.js";
import { patchChildren } from "./patch.js";

/** UTF-16 code units. A longer text is shown as it is: its many nodes would make the page slow. */
const CHARS_MAX = 400_000;

/**
 * A text that grows. The blocks that can no longer change stay as they are; of the last one only what differs is
 * made again.
 */
export class MarkdownView {
  /** @param {HTMLElement} root */
  constructor(root) {
    this.root = root;
    this.text = "";
    /** Where the blocks that may still change begin, in the text and among the root's children. */
    this.settled = { chars: 0, nodes: 0 };
    /** @type {Text | null} the text of a code block that is still open at the end */
    this.openCode = null;
  }

  /** @param {string} text all of it, which begins with what was shown before */
  update(text) {
    if (text === this.text) return;
    if (!text.startsWith(this.text)) this.reset();
    const added = text.slice(this.text.length);
    this.text = text;
    if (text.length > CHARS_MAX) {
      this.root.replaceChildren(el("pre", { class: "plain" }, text));
      this.settled = { chars: 0, nodes: 0 };
      return;
    }
    if (this.openCode && !/[`~\r\0]/.test(added)) {
      this.openCode.appendData(added);
      return;
    }
    const tail = text.slice(this.settled.chars);
    const blocks = parseBlocks(tail);
    patchChildren(this.root, blocks.map(renderBlock), this.settled.nodes);
    this.openCode = openCodeText(this.root, blocks, tail);
    this.settle(blocks, tail);
  }

  reset() {
    this.root.replaceChildren();
    this.settled = { chars: 0, nodes: 0 };
    this.openCode = null;
    this.text = "";
  }

  /**
   * Once the last block's first line is complete, the blocks before it are final.
   * @param {PlacedBlock[]} blocks
   * @param {string} tail
   */
  settle(blocks, tail) {
    const last = blocks[blocks.length - 1];
    if (blocks.length < 2 || tail.includes("\r")) return;
    const start = lineStart(tail, last.line);
    if (!tail.includes("\n", start)) return;
    this.settled = { chars: this.settled.chars + start, nodes: this.settled.nodes + blocks.length - 1 };
  }
}

/**
 * A whole text.
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
 * The text node that an unfinished code block at the end may simply be appended to.
 * @param {HTMLElement} root
 * @param {PlacedBlock[]} blocks
 * @param {string} tail
 * @returns {Text | null}
 */
function openCodeText(root, blocks, tail) {
  const last = blocks[blocks.length - 1];
  // Lines of an indented fence lose their indent, so they cannot be appended as they come.
  // The line break behind the fence is none of the code's, so an empty block is read again.
  if (last?.type !== "code" || !last.open || last.text === "" || !tail.endsWith(last.text) || tail[lineStart(tail, last.line)] === " ") return null;
  const text = root.lastElementChild?.querySelector("code")?.firstChild;
  return text?.nodeType === Node.TEXT_NODE ? /** @type {Text} */ (text) : null;
}

/**
 * @param {Block} block
 * @returns {HTMLElement}
 */
function renderBlock(block) {
  switch (block.type) {
    case "paragraph": return el("p", {}, ...inline(block.text));
    // The page's own headings are h1 and h2.
    case "heading": return el(/** @type {"h3"} */ (`h${Math.min(6, block.level + 2)}`), {}, ...inline(block.text));
    case "code": return codeBlock(block.language, block.text);
    case "rule": return el("hr");
    case "quote": return el("blockquote", {}, ...block.blocks.map(renderBlock));
    case "list": return list(block);
    case "table": return table(block);
  }
}

/**
 * @param {string} language
 * @param {string} text
 */
function codeBlock(language, text) {
  const code = el("code", {}, text);
  const copy = iconButton("copy", "Copy code", () => void navigator.clipboard?.writeText(code.textContent ?? ""));
  const head = el("figcaption", {}, el("span", {}, language || "text"), copy);
  return el("figure", { class: "code" }, head, el("pre", { tabindex: 0 }, code));
}

/** @param {import("./markdown-blocks.js").List} block */
function list({ ordered, start, loose, items }) {
  const rows = items.map((blocks) => {
    const [only] = blocks;
    if (blocks.length === 1 && only.type === "paragraph" && !loose) return el("li", {}, ...inline(only.text));
    return el("li", {}, ...blocks.map((block, index) =>
      (index === 0 && block.type === "paragraph" && !loose ? el("span", {}, ...inline(block.text)) : renderBlock(block))));
  });
  return ordered ? el("ol", { start: start === 1 ? null : start }, ...rows) : el("ul", {}, ...rows);
}

/** @param {import("./markdown-blocks.js").Table} block */
function table({ align, rows }) {
  const [header, ...body] = rows;
  const row = (/** @type {string[]} */ cells, /** @type {"th" | "td"} */ tag) =>
    el("tr", {}, ...cells.map((cell, column) => {
      const scope = tag === "th" ? "col" : null;
      return el(tag, { scope, class: align[column] && `align-${align[column]}` }, ...inline(cell));
    }));
  const inner = el("table", {}, el("thead", {}, row(header, "th")), el("tbody", {}, ...body.map((cells) => row(cells, "td"))));
  return el("div", { class: "table", tabindex: 0 }, inner);
}

/**
 * @param {string} text
 * @returns {Node[]}
 */
function inline(text) {
  return parseInline(text).map(renderInline);
}

/**
 * @param {Inline} node
 * @returns {Node}
 */
function renderInline(node) {
  switch (node.type) {
    case "text": return document.createTextNode(node.text);
    case "code": return el("code", {}, node.text);
    case "break": return el("br");
    case "strong": return el("strong", {}, ...node.children.map(renderInline));
    case "emphasis": return el("em", {}, ...node.children.map(renderInline));
    case "deleted": return el("del", {}, ...node.children.map(renderInline));
    case "link": {
      const attributes = { href: node.href, rel: "noopener noreferrer", target: "_blank" };
      return el("a", attributes, ...node.children.map(renderInline));
    }
  }
}
