/** Example pages in Chromium, on a real server. */

import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { chromium } from "playwright-core";
import { Server } from "../browser/server.mjs";
import { serve } from "../examples/web/serve.mjs";

const TOKEN = "a-token-that-only-the-page's-server-knows".replaceAll("'", "-");

/** Milliseconds allowed for a page on a busy machine. */
export const WAIT_MS = 60_000;

/** Launches Debian's Chromium. The headless shell comes first: it is the same engine and takes a quarter less time. */
export function launch() {
  const installed = ["/usr/bin/chromium-headless-shell", "/usr/bin/chromium"];
  const executablePath = process.env.CHROMIUM ?? installed.find((path) => existsSync(path));
  return chromium.launch({ executablePath, args: ["--no-sandbox", "--disable-gpu"] });
}

/**
 * Serves a folder from its own origin, beside a server with these settings that requires tokens, and opens it in
 * Chromium.
 */
export async function inBrowser(folder, act, settings = {}) {
  let url = "";
  const http = serve({ folder, server: () => url, token: TOKEN });
  await new Promise((resolve) => http.listen(0, "127.0.0.1", resolve));
  const origin = `http://127.0.0.1:${http.address().port}`;
  const server = new Server({ AUTH_TOKENS: `web:${TOKEN}`, ALLOWED_ORIGINS: origin, ...settings });
  const browser = await launch();
  try {
    url = await server.start();
    const context = await browser.newContext();
    context.setDefaultTimeout(WAIT_MS);
    const wrong = [];
    context.on("weberror", (error) => wrong.push(error.error().message));
    const page = await context.newPage();
    await page.goto(origin);
    await act(page, server);
    assert.deepEqual(wrong, []);
  } finally {
    await browser.close();
    await server.remove();
    http.closeAllConnections();
    await new Promise((resolve) => http.close(resolve));
  }
}
