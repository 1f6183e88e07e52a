/** The Markdown subset as plain data. `mock.test.mjs` tests in a real browser how it becomes nodes. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { parseBlocks } from "../../src/server/web/markdown-blocks.js";
import { parseInline, safeAddress } from "../../src/server/web/markdown-inline.js";

/** Writes inline nodes as short text: `*emphasis*` as `em(…)`, a link as `a<address>(…)`. */
function short(nodes) {
  const names = { strong: "b", emphasis: "em", deleted: "del" };
  return nodes.map((node) => {
    switch (node.type) {
      case "text": return node.text;
      case "code": return `code(${node.text})`;
      case "math": return `math(${node.text})`;
      case "break": return "⏎";
      case "link": return `a<${node.href}>(${short(node.children)})`;
      default: return `${names[node.type]}(${short(node.children)})`;
    }
  }).join("");
}

/** Writes blocks as short text. */
function outline(blocks) {
  return blocks.map((block) => {
    switch (block.type) {
      case "paragraph": return `p[${block.text}]`;
      case "heading": return `h${block.level}[${block.text}]`;
      case "code": return `code:${block.language}${block.open ? "…" : ""}[${block.text}]`;
      case "rule": return "hr";
      case "math": return `math[${block.text}]`;
      case "quote": return `quote(${outline(block.blocks)})`;
      case "list": return `${block.ordered ? `ol${block.start}` : "ul"}(${block.items.map((item, index) => ({ true: "[x] ", false: "[ ] ", null: "" })[block.checks[index]] + outline(item)).join(" | ")})`;
      case "table": return `table(${block.rows.map((row) => row.join(",")).join(" / ")})`;
    }
  }).join(" ");
}

const INLINE = [
  ["plain", "plain"],
  ["a **b** c", "a b(b) c"],
  ["a *b* _c_ __d__ ~~e~~", "a em(b) em(c) b(d) del(e)"],
  ["***both***", "em(b(both))"],
  ["**a *b* c**", "b(a em(b) c)"],
  ["*a **b* c**", "em(a em(em(b) c))"],
  ["snake_case_name and 2 * 3 * 4", "snake_case_name and 2 * 3 * 4"],
  ["unclosed **bold", "unclosed **bold"],
  ["`a *b*` c", "code(a *b*) c"],
  ["`` a`b ``", "code(a`b)"],
  ["`open", "`open"],
  ["\\*not\\* \\a", "*not* \\a"],
  ["one\ntwo", "one⏎two"],
  ["[x](https://a.example/?q=1 \"title\")", "a<https://a.example/?q=1>(x)"],
  ["[**x**](http://a.example)", "a<http://a.example/>(b(x))"],
  ["[x](<https://a.example/a b>)", "a<https://a.example/a%20b>(x)"],
  ["[mail](mailto:a@b.example)", "a<mailto:a@b.example>(mail)"],
  ["<https://a.example>", "a<https://a.example/>(https://a.example)"],
  ["see https://a.example/x_y_z. Then", "see a<https://a.example/x_y_z>(https://a.example/x_y_z). Then"],
  ["(https://a.example/a(b))", "(a<https://a.example/a(b)>(https://a.example/a(b)))"],
  ["![alt](https://a.example/p.png)", "a<https://a.example/p.png>(alt)"],
  ["[a [b](https://b.example) c](https://c.example)", "[a a<https://b.example/>(b) c](a<https://c.example/>(https://c.example))"],
  ["[x]", "[x]"],
  ["[x](relative/path)", "[x](relative/path)"],
  ["", ""],
  // Character references, but not in code, and none that would make an address dangerous.
  ["a &amp; b &lt;c&gt; &quot;d&quot; &#39;e&#39; &#x1F331;", "a & b <c> \"d\" 'e' 🌱"],
  ["&nbsp;&hellip;&mdash;&eacute;&alpha;&le;", "\u00a0…—éα≤"],
  ["AT&T &unknown; &amp &#0; &#xD800; &#9999999;", "AT&T &unknown; &amp \ufffd \ufffd \ufffd"],
  ["`&amp;`", "code(&amp;)"],
  ["&#42;no&#42;", "*no*"],
  ["[x](https://a.example/?a=1&amp;b=2)", "a<https://a.example/?a=1&b=2>(x)"],
  // Formulas keep their backslashes; nothing else becomes a formula.
  ["so \\(a_1 * b_1 \\ne \\{x\\}\\) holds", "so math(\\(a_1 * b_1 \\ne \\{x\\}\\)) holds"],
  ["\\[ x = \\frac{1}{2} \\]", "math(\\[ x = \\frac{1}{2} \\])"],
  ["$x_1 + x_2$, $n$, $$E = mc^2$$", "math($x_1 + x_2$), math($n$), math($$E = mc^2$$)"],
  ["$5 and $10, $20_000-$30_000", "$5 and $10, $20_000-$30_000"],
  ["$HOME/bin:$PATH and ${a}-${b}", "$HOME/bin:$PATH and ${a}-${b}"],
  ["\\[not a link\\](x) \\$5 and \\$x^2", "[not a link](x) $5 and $x^2"],
  ["open \\(a and $$b", "open (a and $$b"],
];

test("inline markup", () => {
  for (const [text, expected] of INLINE) assert.equal(short(parseInline(text)), expected, text);
});

const ADDRESSES = [
  "javascript:alert(1)", "JaVaScRiPt:alert(1)", " javascript:alert(1)", "java\tscript:alert(1)", "java\nscript:alert(1)", "\u0001javascript:alert(1)",
  "javascript&colon;alert(1)", "data:text/html,<script>alert(1)</script>", "data:image/svg+xml;base64,PHN2Zz4=", "vbscript:msgbox(1)",
  "file:///etc/passwd", "blob:https://a.example/1", "ftp://a.example", "//a.example", "/relative", "#hash", "?q", "", "about:blank",
  "view-source:https://a.example", "https:", "http://", "http:\\\\a.example", "intent://a#Intent;end", "ws://a.example", "tel:1",
];

/** Returns every link in these nodes. */
function links(nodes) {
  return nodes.flatMap((node) => [...(node.type === "link" ? [node.href] : []), ...links(node.children ?? [])]);
}

test("only http, https and mailto addresses become links", () => {
  for (const address of ADDRESSES) {
    assert.equal(safeAddress(address), null, address);
    for (const text of [`[x](${address})`, `[x](<${address}>)`, `![x](${address})`, `<${address}>`]) {
      // A complete address inside another one becomes its own link, which is what it looks like.
      const bare = address.includes("https://a.example") ? [new URL(address.slice(address.indexOf("https:"))).href] : [];
      assert.ok(links(parseInline(text)).every((href) => bare.includes(href)), text);
    }
  }
  assert.equal(safeAddress("https://a.example/\"><script>"), "https://a.example/%22%3E%3Cscript%3E");
});

const BLOCKS = [
  ["", ""],
  ["a\nb\n\nc", "p[a\nb] p[c]"],
  ["# One\n### Three ###\n#no", "h1[One] h3[Three] p[#no]"],
  ["a\n---\nb", "p[a] hr p[b]"],
  ["```js\nlet a;\n\n# no\n```\nafter", "code:js[let a;\n\n# no] p[after]"],
  ["```\nopen **code", "code:…[open **code]"],
  ["~~~~\n~~~\n~~~~", "code:[~~~]"],
  ["````\n```\n````", "code:[```]"],
  ["- a\n- b\n  - c\n- d", "ul(p[a] | p[b] ul(p[c]) | p[d])"],
  ["3. a\n4. b", "ol3(p[a] | p[b])"],
  ["1. a\n\n   more\n2. b", "ol1(p[a] p[more] | p[b])"],
  ["- a\nlazy\n\nafter", "ul(p[a\nlazy]) p[after]"],
  ["- a\n+ b", "ul(p[a]) ul(p[b])"],
  ["- ```\n  code\n  ```\n- b", "ul(code:[code] | p[b])"],
  ["-", "ul()"],
  ["-no list", "p[-no list]"],
  ["> a\n> > b\n\nc", "quote(p[a] quote(p[b])) p[c]"],
  ["|a|b|\n|-|:-:|\n|1|2|\n|3|\n\nx", "table(a,b / 1,2 / 3) p[x]"],
  ["a | b\n--- | ---\n1 \\| 2 | 3", "table(a,b / 1 | 2,3)"],
  ["a | b\nno table", "p[a | b\nno table]"],
  ["<div onclick=x>\n<script>alert(1)</script>", "p[<div onclick=x>\n<script>alert(1)</script>]"],
  ["a\r\nb\rc", "p[a\nb\nc]"],
  ["- [x] a\n- [ ] b\n- c\n- [x]\n- [y] d", "ul([x] p[a] | [ ] p[b] | p[c] | p[[x]] | p[[y] d])"],
  ["1. [X] a\n   - [ ] b", "ol1([x] p[a] ul([ ] p[b]))"],
  ["a\n\\[\nx = 1 \\\\\n- y\n\\]\nb", "p[a] math[\\[\nx = 1 \\\\\n- y\n\\]] p[b]"],
  ["$$\na\n$$\n\n$$ b $$", "math[$$\na\n$$] math[$$ b $$]"],
  ["\\begin{align*}\na &= b \\\\\n\\end{align*}\nc", "math[\\begin{align*}\na &= b \\\\\n\\end{align*}] p[c]"],
  ["\\[\nopen\n\nafter *a*", "math[\\[\nopen] p[after *a*]"],
  ["$$ is money\n\\[1\\] is a note", "p[$$ is money\n\\[1\\] is a note]"],
  [`|${"a|".repeat(200)}\n|${"-|".repeat(200)}`, `p[|${"a|".repeat(200)}\n|${"-|".repeat(200)}]`],
];

test("blocks", () => {
  for (const [text, expected] of BLOCKS) assert.equal(outline(parseBlocks(text)), expected, JSON.stringify(text));
});

test("a block followed by another one does not change when the text grows", () => {
  const text = `${BLOCKS.map(([block]) => block).join("\n\n").replaceAll("\r", "")}\n\npara\n- item\n-\n> q\n\`\`\`x\nend`;
  for (let cut = 1; cut < text.length; cut += 1) {
    const early = parseBlocks(text.slice(0, cut));
    const last = early.at(-1);
    const complete = last && text.slice(0, cut).split("\n").length - 1 > last.line;
    if (!complete) continue;
    const later = parseBlocks(text).slice(0, early.length - 1);
    assert.deepEqual(early.slice(0, -1), later, `cut at ${cut}`);
  }
});

/** Single-line texts that are expensive if read more than once, of which only a part is generated. */
const hostileLines = (part) => [
  "*".repeat(100_000 / part), "**a ".repeat(30_000 / part), "*a* ".repeat(30_000 / part), "_a*".repeat(30_000 / part), "[".repeat(100_000 / part),
  "![".repeat(50_000 / part), "[](".repeat(30_000 / part), "`".repeat(100_000 / part), "` `` ".repeat(20_000 / part), "<".repeat(100_000 / part),
  "[a](<".repeat(20_000 / part), "https://".repeat(12_000 / part), "(".repeat(100_000 / part), "\\".repeat(100_000 / part), "~~a".repeat(30_000 / part),
  "[x](((((".repeat(10_000 / part), "*_".repeat(64_000 / part), "_*".repeat(64_000 / part), "\\(".repeat(60_000 / part), "$".repeat(100_001 / part), "$a_".repeat(40_000 / part),
  "&".repeat(100_000 / part), "&a".repeat(60_000 / part), "[".repeat(30_000 / part) + "](x)".repeat(30_000 / part), `${"[".repeat(30_000 / part)}${"[a](https://b)".repeat(8000 / part)}`,
  `https://a${".".repeat(1900)}x `.repeat(200 / part), "x".repeat(500_000 / part), "🌱".repeat(250_000 / part),
];

/** The same for texts of many lines. */
const hostileBlocks = (part) => [
  "> ".repeat(50_000 / part), "- ".repeat(50_000 / part), "- a\n".repeat(30_000 / part), "|".repeat(100_000 / part), "```\n".repeat(30_000 / part), "> a\n".repeat(30_000 / part), " ".repeat(100_000 / part), "-|".repeat(50_000 / part), `${"a\n".repeat(50_000 / part)}`,
  `a|b\n-${" ".repeat(100_000 / part)}x`, `# a${" ".repeat(100_000 / part)}x`, `\`\`\`${" ".repeat(100_000 / part)}\``, `- a${"\n".repeat(200_000 / part)}  b`, "\\[\n".repeat(60_000 / part),
  `a|b\n-|-\n${"|\n".repeat(100_000 / part)}`, "- [ ] a\n".repeat(30_000 / part), "x".repeat(500_000 / part),
];

/** Number of attempts, of which the fastest counts: others use the machine too. */
const ATTEMPTS = 5;

/**
 * The number of parts of a text, and how many times longer the whole may take than one part: four times if the time
 * grows linearly with the length, sixteen times if it grows quadratically. Anything that takes less than some
 * milliseconds cannot be measured well, and passes.
 */
const [PARTS, TIMES_MAX, SOME_MS] = [4, 10, 50];

/** Returns the milliseconds of CPU time of this process, however many others are running. */
function busyMs() {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1000;
}

function assertLinear(parse, whole, part) {
  const cost = (text) => {
    const began = busyMs();
    parse(text);
    return busyMs() - began;
  };
  let [most, least] = [Infinity, Infinity];
  for (let attempt = 0; attempt < ATTEMPTS; attempt += 1) {
    least = Math.min(least, cost(part));
    most = Math.min(most, cost(whole));
    if (most <= TIMES_MAX * least + SOME_MS) return;
  }
  assert.fail(`${JSON.stringify(whole.slice(0, 12))} took ${most} ms, a quarter of it ${least} ms`);
}

test("the time for a hostile text grows linearly with its length", () => {
  for (const [parse, texts] of [[parseInline, hostileLines], [parseBlocks, hostileBlocks]]) {
    const parts = texts(PARTS);
    for (const [index, whole] of texts(1).entries()) assertLinear(parse, whole, parts[index]);
  }
});
