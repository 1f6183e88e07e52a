/** Tools of a real server that asks before it runs one: the page, a reload, and another window. */

import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { launch, newPage, say, settled } from "./browser.mjs";
import { Server } from "./server.mjs";

let browser;
before(async () => (browser = await launch()));
after(() => browser.close());

/** Returns the outcome of the newest call. */
const outcome = (page) => page.locator("#log details.call:visible .state").last().innerText();

test("a server tool asks, and is allowed and rejected, once and always", async () => {
  const server = new Server({}, "tools");
  try {
    const url = await server.start();
    const { page, faults } = await newPage(browser.context);
    await page.goto(url);
    await say(page, "Use the tool note with text=milk");
    const card = page.locator(".approval");
    await card.waitFor();
    assert.match(await card.innerText(), /Allow the tool note\?.*"text": "milk"/s);
    await page.reload();
    await card.waitFor();
    await card.locator("button", { hasText: "Allow always" }).click();
    await settled(page, 2);
    assert.match(await outcome(page), /^done · /);
    await say(page, "Use the tool note with text=milk");
    await settled(page, 4);
    assert.match(await outcome(page), /^done · /, "the standing approval applies");
    await say(page, "Use the tool note with text=bread");
    await card.waitFor();
    const other = await newPage(browser.context);
    await other.page.goto(page.url());
    await other.page.locator(".approval button", { hasText: /^Reject$/ }).click();
    await page.locator(".toast", { hasText: "The tool note was rejected in another window." }).waitFor();
    await settled(page, 6);
    assert.equal(await outcome(page), "not run");
    await say(page, "Use the tool notes with x=y");
    await settled(page, 8);
    assert.match(await outcome(page), /^done · /, "a tool that only reads is not asked about");
    await say(page, "/tools");
    const dialog = page.locator("dialog.tools");
    await dialog.locator("p.said", { hasText: "2 tools, all switched on" }).waitFor();
    assert.match(await dialog.locator(".standing").innerText(), /Always allowed: note/);
    await dialog.getByRole("switch", { name: "notes" }).uncheck();
    await dialog.locator("p.said", { hasText: "2 tools, 1 switched on" }).waitFor();
    await dialog.locator("button", { hasText: "Ask again" }).click();
    await dialog.locator(".standing").waitFor({ state: "detached" });
    await page.keyboard.press("Escape");
    await say(page, "Use the tool note with text=milk");
    await card.waitFor();
    await page.click("#stop");
    await card.waitFor({ state: "detached" });
    assert.deepEqual([faults, other.faults], [[], []]);
  } finally {
    await server.remove();
  }
});

/** An MCP server of the older protocol in `sh`, with one tool. */
const SH = `while IFS= read -r line; do
  id=$(printf %s "$line" | sed -n 's/.*"id":\\([0-9]*\\).*/\\1/p')
  case $line in
  (*'"server/discover"'*) echo '{"jsonrpc":"2.0","id":'"$id"',"error":{"code":-32601,"message":"?"}}' ;;
  (*'"initialize"'*) echo '{"jsonrpc":"2.0","id":'"$id"',"result":{"protocolVersion":"2024-11-05","capabilities":{"tools":{}},"serverInfo":{"name":"sh","version":"1"}}}' ;;
  (*'"tools/list"'*) echo '{"jsonrpc":"2.0","id":'"$id"',"result":{"tools":[{"name":"do","description":"Does it.","inputSchema":{"type":"object"}}]}}' ;;
  esac
done`;

test("the MCP servers of a real server are listed with their states, and one added on SIGHUP joins them", async () => {
  const folder = await mkdtemp(join(tmpdir(), "reseed-mcp-"));
  const file = join(folder, "mcp.json");
  const list = (mcpServers) => writeFile(file, JSON.stringify({ mcpServers }));
  const sh = { command: "sh", args: ["-c", SH] };
  await list({ away: { url: "http://127.0.0.1:1/mcp?key=hunter2" }, good: sh, off: { command: "hunter2", disabled: true } });
  const server = new Server({ MCP_FILE: file });
  try {
    const url = await server.start();
    const { page, faults } = await newPage(browser.context);
    await page.goto(url);
    await say(page, "Hello.");
    await settled(page, 1);
    await say(page, "/tools");
    const dialog = page.locator("dialog.tools");
    const state = (name, text) => dialog.locator("section", { has: page.locator("h3", { hasText: new RegExp(`^${name}$`) }) }).locator(".about", { hasText: text }).waitFor();
    await state("good", /^running$/);
    await state("away", /^not running: it cannot be reached · it is tried again$/);
    await state("off", /^switched off$/);
    await dialog.getByRole("switch", { name: "good__do" }).waitFor();
    assert.doesNotMatch(await dialog.innerText(), /hunter2|127\.0\.0\.1/);
    await list({ away: sh, good: sh });
    server.child.kill("SIGHUP");
    await state("away", /^running$/);
    assert.equal(await dialog.locator("h3", { hasText: /^off$/ }).count(), 0);
    assert.deepEqual(faults, []);
  } finally {
    await server.remove();
    await rm(folder, { recursive: true, force: true });
  }
});
