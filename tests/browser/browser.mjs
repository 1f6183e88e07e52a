/** Chromium for the tests, and a page in it that fails the test on what a user must never meet. */

import { existsSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { chromium } from "playwright-core";

const ARGS = [
  "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
  "--disable-component-update", "--disable-sync",
];

/** Debian's Chromium: first the one without a window of its own, the same engine, which takes a quarter less time. */
const INSTALLED = ["/usr/bin/chromium-headless-shell", "/usr/bin/chromium"];

/**
 * Milliseconds within which what a test waits for has come, however busy the machine is, or it does not come at all.
 */
const WAIT_MS = 60_000;

/**
 * A browser with a profile of its own, and one with a touch screen where a test asks for it; `close` removes all of it.
 */
export async function launch() {
  const opened = [];
  const open = async (options) => {
    const profile = await mkdtemp(join(tmpdir(), "reseed-chromium-"));
    const executablePath = process.env.CHROMIUM ?? INSTALLED.find((path) => existsSync(path)) ?? INSTALLED.at(-1);
    const context = await chromium.launchPersistentContext(profile, { executablePath, headless: true, args: ARGS, ...options });
    opened.push({ context, profile });
    return context;
  };
  const context = await open({ viewport: { width: 1200, height: 800 } });
  let touch;
  return {
    context,
    touch: () => (touch ??= open({ viewport: { width: 390, height: 844 }, hasTouch: true, isMobile: true })),
    async close() {
      for (const { context, profile } of opened) {
        await context.close();
        await rm(profile, { recursive: true, force: true });
      }
    },
  };
}

/**
 * A new page. `faults` collects what must not happen: errors on the console, exceptions, requests to other hosts.
 * `expected` tells lines that belong to a test, such as a connection refused while the server is away.
 */
export async function newPage(context, { expected = /^$/, ...options } = {}) {
  const page = await context.newPage();
  if (options.viewport) await page.setViewportSize(options.viewport);
  page.setDefaultTimeout(WAIT_MS);
  const faults = [];
  page.on("pageerror", (error) => faults.push(`exception: ${error.message}`));
  page.on("console", (line) => {
    if (["error", "warning"].includes(line.type()) && !expected.test(line.text())) faults.push(`console: ${line.text()}`);
  });
  page.on("request", (request) => {
    const { hostname, protocol } = new URL(request.url());
    if (protocol !== "data:" && hostname !== "127.0.0.1") faults.push(`request to ${request.url()}`);
  });
  return { page, faults };
}

/** Says something and waits until it is taken. */
export async function say(page, text) {
  await page.fill("#input", text);
  // On a touch screen Enter makes a line.
  if (await page.evaluate(() => matchMedia("(pointer: coarse)").matches)) await page.tap("#send");
  else await page.press("#input", "Enter");
}

/** Waits until nothing is running, and so many answers are there. */
export async function settled(page, answers) {
  await page.waitForFunction((count) => document.querySelectorAll("#log .message.assistant").length >= count, answers);
  await page.waitForSelector("#stop", { state: "hidden" });
}

/** The conversation as text, one line a row. */
export function conversation(page) {
  return page.locator("#log > li").evaluateAll((rows) => rows.map((row) => row.innerText.trim()));
}
