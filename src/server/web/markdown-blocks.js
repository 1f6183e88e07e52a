/**
 * Parses the block structure of a model's text: a small, forgiving subset of Markdown, as plain data.
 *
 * Invariants:
 * - any text parses, every character ends up in some block, and the time is linear in the text for a bounded nesting;
 * - a block never changes when text is appended, once the first line of the block after it is complete (this lets a
 *   streaming view keep the blocks it has shown);
 * - HTML is text.
 *
 * @typedef {{ type: "paragraph", text: string }} Paragraph
 * @typedef {{ type: "heading", level: number, text: string }} Heading
 * @typedef {{ type: "code", language: string, text: string, open: boolean }} Code `open`: more lines may follow.
 * @typedef {{ type: "rule" }} Rule
 * @typedef {{ type: "quote", blocks: Block[] }} Quote
 * @typedef {{ type: "math", text: string }} Math With its delimiters and backslashes, as written.
 * @typedef {{
 *   type: "list", ordered: boolean, start: number, loose: boolean, items: Block[][], checks: (boolean | null)[],
 * }} List `checks`: for each item that is a task, whether it is done.
 * @typedef {{ type: "table", align: Align[], rows: string[][] }} Table The first row is the header. A row may be short.
 * @typedef {"left" | "center" | "right" | null} Align
 * @typedef {Paragraph | Heading | Code | Rule | Quote | Math | List | Table} Block
 * @typedef {Block & { line: number }} PlacedBlock `line` is the line it starts on.
 */

/** Quotes and lists nested deeper than this are shown as text: each level costs another pass. */
const DEPTH_MAX = 8;

/** Maximum columns of a table. Anything wider is text: a single row of bars would make thousands of cells. */
const COLUMNS_MAX = 100;
/**
 * Maximum characters of a line that is parsed as a heading, a rule or a table delimiter row. Nobody writes longer ones.
 */
const LINE_CHARS_MAX = 2000;

const FENCE = /^ {0,3}(`{3,}|~{3,})([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6})(?:[ \t]+(.*))?$/;
const RULE = /^ {0,3}(?:(?:-[ \t]*){3,}|(?:\*[ \t]*){3,}|(?:_[ \t]*){3,})$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^( {0,3})([-*+]|\d{1,9}[.)])([ \t]+|$)/;
const DELIMITERS = /^ {0,3}\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*(?:\|[ \t]*)?$/;
const TASK = /^\[([ xX])\][ \t]+(?=\S)/;
/** Matches the start of a formula on lines of its own and captures what determines its end. */
const MATH = /^ {0,3}(\$\$|\\\[|\\begin\{([A-Za-z]+\*?)\})/;

/**
 * @param {string} text
 * @returns {PlacedBlock[]}
 */
export function parseBlocks(text) {
  return parseLines(text.replace(/\r\n?/g, "\n").replaceAll("\0", "\ufffd").split("\n"), 0);
}

/**
 * @param {string[]} lines
 * @param {number} depth
 * @returns {PlacedBlock[]}
 */
function parseLines(lines, depth) {
  /** @type {PlacedBlock[]} */
  const blocks = [];
  let at = 0;
  while (at < lines.length) {
    if (isBlank(lines[at])) {
      at += 1;
      continue;
    }
    const [block, next] = parseBlock(lines, at, depth);
    blocks.push({ ...block, line: at });
    at = next;
  }
  return blocks;
}

/**
 * Parses the block that starts at line `at`. Also returns the line after it.
 * @param {string[]} lines
 * @param {number} at
 * @param {number} depth
 * @returns {[Block, number]}
 */
function parseBlock(lines, at, depth) {
  const line = lines[at];
  const fence = FENCE.exec(line);
  if (fence) return parseFence(lines, at, fence);
  const math = mathEnd(lines, at);
  if (math !== null) return [{ type: "math", text: lines.slice(at, math).map((l) => l.trim()).join("\n") }, math];
  const heading = line.length <= LINE_CHARS_MAX ? HEADING.exec(line) : null;
  if (heading) {
    const text = (heading[2] ?? "").trim().replace(/(?<![^ \t])#+$/, "").trim();
    return [{ type: "heading", level: heading[1].length, text }, at + 1];
  }
  if (isRule(line)) return [{ type: "rule" }, at + 1];
  if (depth < DEPTH_MAX && QUOTE.test(line)) return parseQuote(lines, at, depth);
  if (depth < DEPTH_MAX && ITEM.test(line)) return parseList(lines, at, depth);
  if (isTable(lines, at)) return parseTable(lines, at);
  let end = at + 1;
  while (end < lines.length && !isBlank(lines[end]) && !interrupts(lines, end, depth)) end += 1;
  const text = lines.slice(at, end).map((l) => l.replace(/^[ \t]+/, "")).join("\n");
  return [{ type: "paragraph", text: text.trimEnd() }, end];
}

/** @param {string} line */
function isBlank(line) {
  return line.trim() === "";
}

/** @param {string} line */
function isRule(line) {
  return line.length <= LINE_CHARS_MAX && RULE.test(line);
}

/**
 * Returns the line after the formula that starts here, or null if none does. The formula ends at its closing delimiter
 * and no later than the paragraph: a formula contains no blank lines.
 * @param {string[]} lines
 * @param {number} at
 * @returns {number | null}
 */
function mathEnd(lines, at) {
  const found = MATH.exec(lines[at]);
  if (!found) return null;
  const close = found[1] === "$$" ? "$$" : found[1] === "\\[" ? "\\]" : `\\end{${found[2]}}`;
  let rest = lines[at].slice(found[0].length);
  // A dollar sign at the start of a sentence is money.
  if (close === "$$" && rest.trim() !== "" && !rest.includes(close)) return null;
  for (let end = at; ; rest = lines[end]) {
    const place = rest.indexOf(close);
    end += 1;
    // A formula in the middle of a sentence belongs to the paragraph.
    if (place >= 0) return end - 1 === at && rest.slice(place + close.length).trim() !== "" ? null : end;
    if (end === lines.length || isBlank(lines[end])) return end;
  }
}

/**
 * Returns true if the line ends the paragraph before it.
 * @param {string[]} lines
 * @param {number} at
 * @param {number} depth
 */
function interrupts(lines, at, depth) {
  const line = lines[at];
  if (FENCE.test(line) || (line.length <= LINE_CHARS_MAX && HEADING.test(line)) || isRule(line)) return true;
  if (mathEnd(lines, at) !== null) return true;
  return depth < DEPTH_MAX && (QUOTE.test(line) || ITEM.test(line));
}

/**
 * @param {string[]} lines
 * @param {number} at
 * @param {RegExpExecArray} fence
 * @returns {[Code, number]}
 */
function parseFence(lines, at, fence) {
  const mark = fence[1];
  const indent = lines[at].length - lines[at].trimStart().length;
  const close = new RegExp(`^ {0,3}${mark[0]}{${mark.length},}[ \\t]*$`);
  let end = at + 1;
  while (end < lines.length && !close.test(lines[end])) end += 1;
  const body = lines.slice(at + 1, end).map((line) => dedent(line, indent));
  const language = fence[2].trim().split(/[ \t]/)[0] ?? "";
  const open = end === lines.length;
  return [{ type: "code", language, text: body.join("\n"), open }, open ? end : end + 1];
}

/**
 * @param {string[]} lines
 * @param {number} at
 * @param {number} depth
 * @returns {[Quote, number]}
 */
function parseQuote(lines, at, depth) {
  let end = at + 1;
  while (end < lines.length && QUOTE.test(lines[end])) end += 1;
  const inner = lines.slice(at, end).map((line) => line.replace(QUOTE, ""));
  return [{ type: "quote", blocks: parseLines(inner, depth + 1) }, end];
}

/**
 * Parses a list. It continues while its lines start an item of the same kind, are indented below the last item, or
 * continue that item's paragraph. A blank line ends it unless one of the first two follows.
 * @param {string[]} lines
 * @param {number} at
 * @param {number} depth
 * @returns {[List, number]}
 */
function parseList(lines, at, depth) {
  const first = /** @type {RegExpExecArray} */ (ITEM.exec(lines[at]));
  const kind = markKind(first[2]);
  /** @type {string[][]} */
  const items = [];
  let indent = 0;
  let loose = false;
  let end = at;
  let blanks = 0;
  while (end < lines.length) {
    const line = lines[end];
    const item = ITEM.exec(line);
    if (isBlank(line)) {
      blanks += 1;
    } else if (items.length > 0 && indentOf(line) >= indent) {
      const item = items[items.length - 1];
      for (; blanks > 0; blanks -= 1) {
        item.push("");
        loose = true;
      }
      item.push(dedent(line, indent));
    } else if (item && markKind(item[2]) === kind && !isRule(line)) {
      loose ||= blanks > 0;
      blanks = 0;
      indent = contentIndent(item);
      items.push([line.slice(item[0].length > indent ? indent : item[0].length)]);
    } else if (blanks === 0 && items.length > 0 && !item && !interrupts(lines, end, depth)) {
      items[items.length - 1].push(line.trimStart());
    } else {
      break;
    }
    end += 1;
  }
  const start = Number.parseInt(first[2], 10);
  const checks = items.map((item) => {
    const task = TASK.exec(item[0]);
    if (!task) return null;
    item[0] = item[0].slice(task[0].length);
    return task[1] !== " ";
  });
  const parsed = items.map((item) => parseLines(item, depth + 1));
  return [{ type: "list", ordered: kind !== first[2], start: Number.isNaN(start) ? 1 : start, loose, items: parsed, checks }, end - blanks];
}

/**
 * Returns what the items of one list share: the bullet, or the character after the number.
 * @param {string} mark
 */
function markKind(mark) {
  return mark.length === 1 ? mark : mark[mark.length - 1];
}

/**
 * Returns the indentation of an item's lines. More than four spaces after the marker belong to its text.
 * @param {RegExpExecArray} item
 */
function contentIndent(item) {
  const mark = item[1].length + item[2].length;
  const gap = item[3].length;
  return gap >= 1 && gap <= 4 ? mark + gap : mark + 1;
}

/** @param {string} line */
function indentOf(line) {
  return line.length - line.trimStart().length;
}

/**
 * @param {string} line
 * @param {number} count spaces to remove, as far as there are any
 */
function dedent(line, count) {
  return line.slice(Math.min(count, indentOf(line)));
}

/**
 * Returns true if a table starts here: a row, then a delimiter row with as many cells.
 * @param {string[]} lines
 * @param {number} at
 */
function isTable(lines, at) {
  const next = lines[at + 1];
  if (next === undefined || !lines[at].includes("|") || next.length > LINE_CHARS_MAX || !DELIMITERS.test(next)) return false;
  const columns = cells(next).length;
  return columns <= COLUMNS_MAX && cells(lines[at]).length === columns;
}

/**
 * @param {string[]} lines
 * @param {number} at
 * @returns {[Table, number]}
 */
function parseTable(lines, at) {
  const header = cells(lines[at]);
  const align = cells(lines[at + 1]).map((cell) => {
    const left = cell.startsWith(":");
    const right = cell.endsWith(":");
    return left && right ? "center" : right ? "right" : left ? "left" : null;
  });
  const rows = [header];
  let end = at + 2;
  while (end < lines.length && lines[end].includes("|") && !isBlank(lines[end])) {
    rows.push(cells(lines[end]).slice(0, header.length));
    end += 1;
  }
  return [{ type: "table", align, rows }, end];
}

/**
 * Splits a row into cells; `\|` is a bar in the text.
 * @param {string} line
 */
function cells(line) {
  const inner = line.trim().replace(/^\|/, "").replace(/(^|[^\\])\|$/, "$1");
  return inner.split(/(?<!\\)\|/).map((cell) => cell.replaceAll("\\|", "|").trim());
}
