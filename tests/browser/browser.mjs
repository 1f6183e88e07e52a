/** Chromium for the tests, and pages that fail the test on anything a user must never meet. */

import { existsSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { chromium } from "playwright-core";

const ARGS = [
  "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
  "--disable-component-update", "--disable-sync",
];

/** Debian's Chromium. The headless shell comes first: it is the same engine and takes a quarter less time. */
const INSTALLED = ["/usr/bin/chromium-headless-shell", "/usr/bin/chromium"];

/** Milliseconds allowed for anything a test waits for: however busy the machine is, after that it will never come. */
const WAIT_MS = 60_000;

/** Launches a browser with its own profile, and one with a touch screen if a test asks for it; `close` removes both. */
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
 * Opens a new page. `faults` collects what must not happen: console errors, exceptions, requests to other hosts.
 * `expected` matches lines that belong to a test, such as a refused connection while the server is down.
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

/** Sends a message and waits until it is accepted. */
export async function say(page, text) {
  await page.fill("#input", text);
  // On a touch screen Enter starts a new line.
  if (await page.evaluate(() => matchMedia("(pointer: coarse)").matches)) await page.tap("#send");
  else await page.press("#input", "Enter");
}

/** Waits until nothing is running and this many answers are shown. */
export async function settled(page, answers) {
  await page.waitForFunction((count) => document.querySelectorAll("#log .message.assistant").length >= count, answers);
  await page.waitForSelector("#stop", { state: "hidden" });
}

/** Returns the conversation as text, one line per row, without the time of the row under the mouse. */
export function conversation(page) {
  return page.locator("#log > li").evaluateAll((rows) => rows.map((row) => {
    const time = row.querySelector(".when")?.innerText;
    return (time ? row.innerText.replace(new RegExp(`${time}\\n?`), "") : row.innerText).trim();
  }));
}
