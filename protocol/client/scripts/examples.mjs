/**
 * Generates `src/testing/examples.ts` from the example frames of the protocol. With `--check` it only compares, and
 * exits with 1 if they differ.
 */

import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

const examples = fileURLToPath(new URL("../../examples/v2/", import.meta.url));
const target = fileURLToPath(new URL("../src/testing/examples.ts", import.meta.url));

const names = ["events", "replies"].flatMap((folder) =>
  readdirSync(`${examples}${folder}`)
    .sort()
    .map((file) => `${folder}/${file.replace(/\.json$/, "")}`),
);
const lines = names.map((name) => {
  const frame = JSON.parse(readFileSync(`${examples}${name}.json`, "utf8"));
  return `  ${JSON.stringify(name)}: ${JSON.stringify(frame)},`;
});
const text = `// Written from protocol/examples/v2 by \`npm run generate\`. Do not edit.

/** One frame of each reply and event, by the name of its file. */
export const EXAMPLES = {
${lines.join("\n")}
} as const;
`;

if (!process.argv.includes("--check")) writeFileSync(target, text);
else if (readFileSync(target, "utf8") !== text) {
  console.error("src/testing/examples.ts differs from protocol/examples/v2; run `npm run generate`");
  process.exitCode = 1;
}
