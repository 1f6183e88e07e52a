/** Tests on a fresh mock server and page, which fail on anything a user must never meet. */

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { launch, newPage } from "./browser.mjs";
import { MockServer } from "./mock.mjs";

/** Screens that the page must fit: a phone, a desktop at 200 % zoom, and a short window. */
export const SCREENS = {
  phone: { width: 390, height: 844 },
  zoom: { width: 640, height: 400 },
  short: { width: 1280, height: 560 },
};

/** Starts the browser of a test file. The returned function declares one test. */
export function mockPages() {
  let browser;
  before(async () => (browser = await launch()));
  after(() => browser.close());
  return (name, options, body) => test(name, async () => {
    const server = new MockServer(options);
    const url = await server.listen();
    const context = options.touch ? await browser.touch() : browser.context;
    const { page, faults } = await newPage(context, options);
    try {
      await page.goto(url);
      await body({ page, server, url });
      assert.deepEqual([faults, server.faults], [[], []]);
    } finally {
      await page.close();
      await server.close();
    }
  });
}
