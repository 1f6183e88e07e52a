/** What people look at after the hour: the operator's page, and the chain of the audit log. */

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { money } from "../../../src/server/web/operator/format.js";
import { launch, WAIT_MS } from "../pages.mjs";
import { OPERATOR } from "./servers.mjs";

const shown = (number) => number.toLocaleString("en");

/** The operator's page shows the sums: of the hour, and of each user. Users beyond its hundred rows are not shown. */
export async function readPage(node, total, users) {
  const browser = await launch();
  try {
    const page = await browser.newPage();
    page.setDefaultTimeout(WAIT_MS);
    await page.goto(new URL("/operator#usage", node.url).href);
    await page.fill("#token", OPERATOR);
    await page.press("#token", "Enter");
    const cost = ({ costNanoUsd, estimatedCostNanoUsd }) => money(costNanoUsd + estimatedCostNanoUsd);
    await page.waitForSelector(".view[aria-label=Usage] .tiles dd");
    const tiles = await page.locator(".view[aria-label=Usage] .tiles dd").allInnerTexts();
    assert.deepEqual(tiles.slice(0, 4), [cost(total), ...["requests", "inputTokens", "outputTokens"].map((name) => shown(total[name]))]);
    await page.evaluate(() => (location.hash = "#users"));
    const rows = page.locator(".view[aria-label=Users] tbody tr");
    await rows.first().waitFor();
    const cells = await rows.evaluateAll((rows) =>
      rows.map((row) => [...row.cells].map((cell) => cell.title || (cell.querySelector(".amount") ?? cell).innerText)),
    );
    assert.equal(cells.length, Math.min(users.length, 100));
    for (const [user, paid, requests, input, , output] of cells) {
      const sum = users.find((sum) => sum.user === user);
      assert.deepEqual([paid, requests, input, output], [cost(sum), shown(sum.requests), shown(sum.inputTokens), shown(sum.outputTokens)], user);
    }
  } finally {
    await browser.close();
  }
}

/**
 * The audit log of every server is unchanged, kills included, and has every deletion. Without one of its lines, it is
 * not. Returns the number of lines.
 */
export function verifyAudit(nodes, deleted, random) {
  const audits = nodes.map(({ folder, binary }) => ({ path: join(folder, "audit"), binary, folder }));
  const verify = ({ binary, folder, path }) => spawnSync(binary, ["audit", "verify", path], { cwd: folder, encoding: "utf8" });
  const linesOf = ({ path }) => readFileSync(path, "utf8").trimEnd().split("\n");
  const lines = audits.flatMap(linesOf);
  const acts = lines.map((line) => JSON.parse(line));
  const gone = new Set(acts.filter(({ what, outcome }) => what === "delete_session" && outcome === "deleted").map(({ session }) => session));
  assert.deepEqual(deleted.filter((session) => !gone.has(session)), [], "deletions that are not in the audit log");
  for (const audit of audits) {
    const { status, stdout, stderr } = verify(audit);
    assert.equal(status, 0, `${stdout}${stderr}`);
    const left = linesOf(audit);
    const at = Math.floor(random() * (left.length - 1));
    left.splice(at, 1);
    writeFileSync(audit.path, `${left.join("\n")}\n`);
    const changed = verify(audit);
    assert.equal(changed.status, 1, changed.stdout);
    // The first line may be missing because it is in an earlier file; then the second one tells nothing.
    assert.match(changed.stderr, new RegExp(`audit line ${at + 1}\\b`), "the line after the removed one is named");
  }
  return lines.length;
}
