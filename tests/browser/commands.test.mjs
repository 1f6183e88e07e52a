/** What is a command and what is a message; what a close code asks for; how long to wait. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { completions, parseCommand } from "../../src/server/web/commands.js";
import { afterClose, backoff } from "../../src/server/web/connection.js";
import { sessionHash, sessionOfHash } from "../../src/server/web/sessions.js";

test("lines are read as commands or as messages", () => {
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

test("close codes", () => {
  const table = {
    1000: "stop", 1001: "retry", 1002: "stop", 1003: "stop", 1005: "retry", 1006: "retry", 1007: "stop", 1009: "stop",
    1011: "retry", 1012: "retry", 1013: "retry", 1014: "retry", 4400: "stop", 4401: "login", 4403: "stop", 4404: "stop",
    4408: "stop", 4409: "stop", 4429: "stop", 4504: "retry", 4508: "retry",
  };
  for (const [code, expected] of Object.entries(table)) assert.equal(afterClose(Number(code)), expected, code);
});

test("waiting grows, stays within its bounds, and is spread", () => {
  for (let tries = 0; tries < 30; tries += 1) {
    assert.ok(backoff(tries, 0) >= 200 && backoff(tries, 1) <= 15_000, `try ${tries}`);
    assert.ok(backoff(tries, 0) < backoff(tries, 1), `try ${tries}`);
  }
  assert.ok(backoff(3, 0.5) > backoff(2, 0.5));
  assert.equal(backoff(100, 1), 15_000);
});

test("the address names the session", () => {
  assert.equal(sessionOfHash(sessionHash("abc.DEF:1_2-3")), "abc.DEF:1_2-3");
  for (const hash of ["", "#", "#input", "#session=", "#session=a/b", `#session=${"x".repeat(300)}`]) {
    assert.equal(sessionOfHash(hash), null, hash);
  }
});
