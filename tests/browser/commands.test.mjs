/** Parts of the page that need no browser: commands, the address, exported Markdown, colours and logged frames. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { filePart } from "../../src/server/web/attached.js";
import { completions, parseCommand } from "../../src/server/web/commands.js";
import { markdownOf } from "../../src/server/web/export.js";
import { tokensOf } from "../../src/server/web/highlight.js";
import { sessionHash, sessionOfHash } from "../../src/server/web/sessions.js";

test("lines are parsed as commands or as messages", () => {
  const table = [
    ["hello", null],
    ["a /context", null],
    ["/usr/bin/env is a path", null],
    ["/context", "context||true"],
    ["  /Context ", "context||true"],
    ["/compact keep the names\nand numbers", "compact|keep the names\nand numbers|true"],
    ["/nothing here", "nothing|here|false"],
    ["/", "help||true"],
    ["//", null],
  ];
  for (const [text, expected] of table) {
    const command = parseCommand(text);
    assert.equal(command && `${command.name}|${command.rest}|${command.known}`, expected, text);
  }
  assert.deepEqual(completions("/co").map((command) => command.name), ["context", "compact"]);
  assert.deepEqual(completions("/compact now"), []);
});

test("the address names the session", () => {
  assert.equal(sessionOfHash(sessionHash("abc.DEF:1_2-3")), "abc.DEF:1_2-3");
  for (const hash of ["", "#", "#input", "#session=", "#session=a/b", `#session=${"x".repeat(300)}`]) {
    assert.equal(sessionOfHash(hash), null, hash);
  }
});

test("exported Markdown fences files, closes open fences and loads no pictures", () => {
  const about = { type: "message", role: "user", entryId: "1", timestamp: "2026-01-01T00:00:00Z" };
  const text = (content) => markdownOf("x", [{ ...about, content }]).split("\n\n").slice(2).join("\n\n").trimEnd();
  const ticks = "` ".repeat(300_000);
  const said = (one) => [{ type: "text", text: one }];
  const table = [
    [[filePart("a`b.md", "```\ncode\n```")], "*File* `a'b.md`\n\n````\n```\ncode\n```\n````"],
    [said("```js\nlet a"), "```js\nlet a\n```"],
    [said("````\n```\nx"), "````\n```\nx\n````"],
    [said("~~~\nx\n~~~~\ny"), "~~~\nx\n~~~~\ny"],
    [said("- ```js\n  x"), "- ```js\n  x\n  ```"],
    [said("```x``` y"), "```x``` y"],
    [[{ type: "image", url: "https://a.example/p q.png" }], "*[picture]* <https://a.example/p%20q.png>"],
    [[{ type: "tool_result", toolCallId: "1", output: ticks }], `\`\`\`text\n${ticks}\n\`\`\``],
  ];
  for (const [parts, expected] of table) assert.equal(text(parts), expected.trimEnd());
});

test("names of fields begin at a word", () => {
  for (const [text, names] of [["--my-colour: red; a:b", ["--my-colour", "a"]], ["-".repeat(30_000), []]]) {
    const found = tokensOf(text, "css").filter(({ kind }) => kind === "name");
    assert.deepEqual(found.map(({ from, to }) => text.slice(from, to)), names);
  }
});

test("many frames of progress make no other frame leave, and the other way round", async () => {
  // Older versions of Node have no WebSocket, which the module extends.
  globalThis.WebSocket ??= /** @type {any} */ (class {});
  const { WireLog } = await import("../../src/server/web/wire-log.js");
  const log = new WireLog();
  const frame = (type, count) => Array.from({ length: count }, () => log.add(false, JSON.stringify({ v: 1, type })));
  frame("turn_started", 400);
  frame("item_delta", 900);
  frame("call_progressed", 100);
  frame("entry_appended", 200);
  log.add(true, JSON.stringify({ v: 1, type: "hello", payload: { token: "secret" } }));
  const { frames } = log;
  assert.deepEqual([frames.length, frames.filter(({ isProgress }) => isProgress).length], [1000, 500]);
  assert.ok(frames.every(({ number }, index) => index === 0 || number > frames[index - 1].number));
  assert.ok(frames.every(({ text }) => !text.includes("secret")));
});
