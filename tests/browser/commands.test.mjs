/** Telling commands from messages, and parsing the address. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { completions, parseCommand } from "../../src/server/web/commands.js";
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
