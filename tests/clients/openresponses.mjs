/**
 * The compliance suite of Open Responses (github.com/openresponses/openresponses), in front of a scripted model. The
 * suite is not published as a package, so that this runs only where a folder with its sources is at hand, with `zod`
 * installed in it. Usage: `node openresponses.mjs RESEED BUN FOLDER`, the server's binary, the program `bun` (the
 * suite's WebSocket tests need it), and the folder. Prints one line a test.
 */

import assert from "node:assert/strict";
import { inTemporaryFolder, runToEnd, startReseed } from "./server.mjs";
import { startModel } from "./scripted_model.mjs";

const [reseed, bun, suite] = process.argv.slice(2);
const MODEL = "scripted";

/** Calls the first tool that it is offered, and otherwise says something. */
function script({ tools = [] }) {
  const [tool] = tools;
  if (!tool) return { text: "The number is four." };
  return { calls: [{ name: tool.function.name, arguments: { location: "San Francisco, CA" } }] };
}

await inTemporaryFolder(async (folder) => {
  const model = await startModel({ name: MODEL, windowTokens: 100_000, script });
  const server = await startReseed(reseed, folder, { OPENAI_BASE_URL: model.url, MODEL });
  const args = ["run", "bin/compliance-test.ts", "-u", `${server.url}/v1`, "-k", "none-needed", "-m", MODEL, "--json"];
  const { out, err } = await runToEnd(bun, args, { cwd: suite });
  await server.stop();
  model.close();
  let results = [];
  try {
    ({ results } = JSON.parse(out));
  } catch {
    console.log(`failed the suite did not run: ${out}${err}`);
  }
  for (const { id, status, errors = [] } of results) {
    // Tests of what needs a real account are skipped by the suite itself.
    if (status !== "skipped") console.log(`${status === "passed" ? "ok" : "failed"} ${id} ${errors.join("; ")}`.trim());
  }
  assert.deepEqual(model.broken, []);
  process.exitCode = results.length > 0 && results.every(({ status }) => status !== "failed") ? 0 : 1;
});
