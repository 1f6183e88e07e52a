/** The identity of a browser tab: the same after a reload, a new one in a duplicate. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { tabId } from "reseed-client";
import { quiet } from "./bench.mjs";

/** Locks as in a browser, for the pages of one test: a lock is held until its page is gone. */
class Locks {
  #held = new Map();
  #waiting = new Map();

  /** Returns the locks as one page sees them. */
  of(page) {
    return { request: (name, { signal }, taken) => this.#request(page, name, signal, taken) };
  }

  #request(page, name, signal, taken) {
    if (!this.#held.has(name)) {
      this.#held.set(name, page);
      return taken();
    }
    return new Promise((resolve, reject) => {
      this.#waiting.set(name, () => resolve(this.#request(page, name, signal, taken)));
      signal.addEventListener("abort", () => reject(signal.reason));
    });
  }

  /** Unloads a page. */
  unload(page) {
    for (const [name, holder] of this.#held) {
      if (holder !== page) continue;
      this.#held.delete(name);
      this.#waiting.get(name)?.();
    }
  }
}

/** The storage of a tab; a duplicate starts with a copy of it. */
function storage(kept = {}) {
  return { kept, getItem: (key) => kept[key] ?? null, setItem: (key, value) => void (kept[key] = value) };
}

/** Makes this process a page loaded in a tab, and returns the tab's id. */
async function load({ sessionStorage, locks, how = "navigate" }) {
  const globals = { navigator: { locks }, sessionStorage, performance: { getEntriesByType: () => [{ type: how }] } };
  const before = Object.keys(globals).map((name) => [name, Object.getOwnPropertyDescriptor(globalThis, name)]);
  for (const [name, value] of Object.entries(globals))
    Object.defineProperty(globalThis, name, { value, configurable: true });
  try {
    return await tabId();
  } finally {
    for (const [name, known] of before) {
      if (known) Object.defineProperty(globalThis, name, known);
      else delete globalThis[name];
    }
  }
}

test("a reload keeps the id, even while the previous page releases it; a duplicate takes and keeps its own", async () => {
  const locks = new Locks();
  const tab = storage();
  const first = await load({ sessionStorage: tab, locks: locks.of("first") });
  assert.match(first, /^[0-9a-f]{32}$/);
  const reloaded = load({ sessionStorage: tab, locks: locks.of("second"), how: "reload" });
  await quiet();
  locks.unload("first");
  assert.equal(await reloaded, first);
  const copy = storage({ ...tab.kept });
  const other = await load({ sessionStorage: copy, locks: locks.of("copy") });
  assert.notEqual(other, first);
  locks.unload("copy");
  assert.equal(await load({ sessionStorage: copy, locks: locks.of("copy again"), how: "reload" }), other);
});

test("without locks, only a reload counts as the same tab", async () => {
  const refusing = { request: () => Promise.reject(new Error("locks are not allowed here")) };
  for (const locks of [undefined, refusing]) {
    const tab = storage();
    const first = await load({ sessionStorage: tab, locks });
    assert.equal(await load({ sessionStorage: tab, locks, how: "reload" }), first);
    assert.notEqual(await load({ sessionStorage: storage({ ...tab.kept }), locks }), first);
  }
});

test("without storage, every load is a separate client", async () => {
  const fresh = () => load({ sessionStorage: undefined, locks: new Locks().of("page") });
  assert.notEqual(await fresh(), await fresh());
});
