/** The examples with the AI SDK: `useChat` in React and assistant-ui, in Chromium, on the real server. */

import assert from "node:assert/strict";
import { cpSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { Server } from "../browser/server.mjs";
import { pack, PACKAGE, run, tool, unpack } from "./packed.mjs";
import { inBrowser, launch, WAIT_MS } from "./pages.mjs";

const PLAIN = fileURLToPath(new URL("../examples/ai-sdk/", import.meta.url));
const ASSISTANT = fileURLToPath(new URL("../examples/assistant-ui/", import.meta.url));
const README = new URL("../../src/dialects/ai_sdk/README.md", import.meta.url);

/** An answer that takes some seconds, so that it has a middle. */
const WORDS = Array.from({ length: 150 }, (_, number) => `word${number}`).join(" ");
const LONG = `Repeat after me: ${WORDS}`;
const SLOW = { OFFLINE_WORD_MILLIS: "20" };

/** The pages of both, built. */
const pages = {};

before(() => {
  unpack(pack(), PLAIN);
  const esbuild = join(PACKAGE, "node_modules/.bin/esbuild");
  for (const folder of [PLAIN, ASSISTANT]) {
    const page = mkdtempSync(join(tmpdir(), "reseed-example-"));
    cpSync(join(folder, "index.html"), join(page, "index.html"));
    const outfile = `--outfile=${join(page, "chat.js")}`;
    run(esbuild, ["chat.tsx", "--bundle", "--format=esm", outfile, "--log-level=error"], { cwd: folder });
    pages[folder] = page;
  }
});

after(() => Object.values(pages).forEach((page) => rmSync(page, { recursive: true, force: true })));

/** Sends a message. */
async function say(page, text) {
  await page.fill("input", text);
  await page.click("text=Send");
}

/** Waits until the page shows this text in its last answer. */
const shows = (page, text) => page.locator("article.assistant").last().locator(`text=${text}`).first().waitFor();

/** Waits until the page can send, with this many messages. */
async function settled(page, messages) {
  await page.waitForSelector("button:text('Send'):enabled");
  await page.waitForFunction((count) => document.querySelectorAll("article").length === count, messages);
}

/** Returns the messages as they are shown: id and text. */
const shown = (page) => page.$$eval("article", (all) => all.map((message) => [message.id, message.innerText]));

/** Opens the chat of a page in another window. */
async function another(page) {
  const other = await page.context().newPage();
  await other.goto(page.url());
  return other;
}

test("the plain example passes tsc with the packed types, and is the README's", () => {
  for (const folder of [PLAIN, ASSISTANT]) tool("tsc", ["--project", folder]);
  const source = readFileSync(join(PLAIN, "chat.tsx"), "utf8");
  assert.ok(source.split("\n").length < 80, `${source.split("\n").length} lines`);
  assert.equal(/```tsx\n([^]*?)```/.exec(readFileSync(README, "utf8"))[1], source);
});

test("an answer is streamed, and a reload in its middle and another window show it once", () =>
  inBrowser(
    pages[PLAIN],
    async (page) => {
      await say(page, LONG);
      await shows(page, "word5 ");
      const other = await another(page);
      await page.reload();
      for (const window of [page, other]) {
        await shows(window, "word149");
        await settled(window, 2);
      }
      const complete = await shown(page);
      assert.match(complete[1][1], new RegExp(`^${WORDS}$`));
      assert.deepEqual(await shown(other), complete);
      assert.ok((await page.$eval("meter", (meter) => meter.value)) > 0);
      await page.reload();
      await settled(page, 2);
      assert.deepEqual(await shown(page), complete, "a finished answer is read from the server");
    },
    SLOW,
  ));

test("stop cancels or detaches, as the page says", () =>
  inBrowser(
    pages[PLAIN],
    async (page) => {
      await say(page, LONG);
      await shows(page, "word5 ");
      await page.click("text=Stop");
      await settled(page, 2);
      await page.reload();
      await settled(page, 2);
      const stopped = await shown(page);
      assert.match(stopped[1][1], /word5 /);
      assert.doesNotMatch(stopped[1][1], /word149/);

      const detaching = await page.context().newPage();
      const detach = async (route) => {
        const response = await route.fetch();
        await route.fulfill({ response, body: (await response.text()).replace('onAbort: "cancel"', 'onAbort: "detach"') });
      };
      await detaching.route("**/chat.js", detach);
      await detaching.goto(`${new URL("/", page.url())}#detached`);
      await say(detaching, LONG);
      await shows(detaching, "word5 ");
      await detaching.click("text=Stop");
      await settled(detaching, 2);
      await detaching.reload();
      await shows(detaching, "word149");
      await settled(detaching, 2);
      assert.equal((await shown(detaching))[1][1], WORDS);
    },
    SLOW,
  ));

test("regenerate and edit branch, and a tool of the page goes on in the same message", () =>
  inBrowser(pages[PLAIN], async (page) => {
    await say(page, "Repeat after me: fair winds");
    await settled(page, 2);
    const [question, answer] = await shown(page);
    await page.click("text=Again");
    await page.waitForFunction((id) => document.querySelectorAll("article")[1]?.id !== id, answer[0]);
    await settled(page, 2);
    assert.deepEqual((await shown(page)).map(([, text]) => text), [question[1], answer[1]]);
    await page.click("text=Edit");
    assert.equal(await page.inputValue("input"), "Repeat after me: fair winds");
    await say(page, "Repeat after me: calm seas");
    await shows(page, "calm seas");
    await settled(page, 2);
    await say(page, "Use the tool language with x=y");
    await shows(page, "language: output-available");
    await page.waitForFunction(() => [...document.querySelectorAll("article")].at(-1).querySelector("p:not(.tool)"));
    await settled(page, 4);
    const before = await shown(page);
    await page.reload();
    await settled(page, 4);
    assert.deepEqual(await shown(page), before, "a reload shows the same");
  }));

test("a compaction is a row of the answer", () =>
  inBrowser(
    pages[PLAIN],
    async (page) => {
      for (let turn = 1; (await page.locator("small").count()) === 0; turn += 1) {
        assert.ok(turn < 30, "nothing was compacted");
        await say(page, `Repeat after me: ${turn} ${"and more ".repeat(100)}`);
        await settled(page, 2 * turn);
      }
      assert.match(await page.locator("small").first().innerText(), /summarised: done/);
    },
    { CONTEXT_WINDOW: "3000" },
  ));

test("a server that was killed in the middle of an answer has the chat when it starts again", () =>
  inBrowser(
    pages[PLAIN],
    async (page, server) => {
      await say(page, "Repeat after me: fair winds");
      await settled(page, 2);
      await say(page, LONG);
      await shows(page, "word5 ");
      await server.end("SIGKILL");
      await page.waitForSelector("[role=alert]");
      await server.start();
      await page.reload();
      await page.waitForFunction(() => document.querySelectorAll("article.user").length === 2);
      await page.click("text=Again");
      await shows(page, "word149");
      await settled(page, 4);
      assert.equal((await shown(page)).at(-1)[1], WORDS);
      const before = await shown(page);
      await page.reload();
      await settled(page, 4);
      assert.deepEqual(await shown(page), before);
    },
    SLOW,
  ));

test("a call waits for the user's approval, also after a reload", async () => {
  const server = new Server({}, "tools");
  const browser = await launch();
  try {
    const url = await server.start();
    const page = await browser.newPage();
    page.setDefaultTimeout(WAIT_MS);
    await page.route(/\/(server|ticket)$/, (route) =>
      route.fulfill({ body: route.request().url().endsWith("server") ? url : "" }),
    );
    // This server knows only the origin of its own page.
    const open = async () => {
      await page.goto(`${url}healthz#notes`);
      await page.setContent("<main></main>");
      await page.addScriptTag({ path: join(pages[PLAIN], "chat.js"), type: "module" });
    };
    await open();
    await say(page, "Use the tool note with text=milk");
    await page.click("text=Allow");
    await shows(page, "note: output-available");
    await page.waitForFunction(() => [...document.querySelectorAll("article")].at(-1).querySelector("p:not(.tool)"));
    await settled(page, 2);
    await say(page, "Use the tool note with text=bread");
    await page.waitForSelector("text=Reject");
    await page.goto("about:blank");
    // A replay has the call without a decision, so the user decides after it.
    const replayed = page.waitForEvent("websocket").then((socket) =>
      socket.waitForEvent("framereceived", { predicate: ({ payload }) => payload.includes('"type":"end"') }),
    );
    await open();
    await replayed;
    await settled(page, 4);
    await page.click("text=Reject");
    await shows(page, "note: output-denied");
    await page.waitForFunction(() => [...document.querySelectorAll("article")].at(-1).querySelector("p:not(.tool)"));
    await settled(page, 4);
  } finally {
    await browser.close();
    await server.remove();
  }
});

test("assistant-ui shows a streamed answer, and a reload resumes it", () =>
  inBrowser(
    pages[ASSISTANT],
    async (page) => {
      const messages = page.locator(".message");
      await page.fill("textarea", LONG);
      await page.click("text=Send");
      await messages.nth(1).locator("text=word5 ").waitFor();
      await page.reload();
      const ended = (words) => [...document.querySelectorAll(".message")].at(-1)?.innerText === words;
      await page.waitForFunction(ended, WORDS);
      assert.deepEqual(await messages.allInnerTexts(), [LONG, WORDS]);
    },
    SLOW,
  ));
