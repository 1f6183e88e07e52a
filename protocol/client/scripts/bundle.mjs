/**
 * Bundles the client into one module for the built-in page, which the server serves without a build step:
 * `node scripts/bundle.mjs FILE`. With `--check` it only compares, and exits with 1 if they differ.
 *
 * The server joins the page's modules line by line and only understands `export const`, so everything is in one
 * function. The bundle is minified, since every visitor loads it: that saves 5 of 21 KB on the wire. Review the source;
 * a test compares the two.
 */

import { readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const folder = fileURLToPath(new URL("..", import.meta.url));
const target =
  process.argv.slice(2).find((word) => !word.startsWith("--")) ?? `${folder}../../src/server/web/client.js`;
const options = {
  absWorkingDir: folder,
  entryPoints: ["src/index.ts"],
  bundle: true,
  target: "es2022",
  write: false,
  charset: "utf8",
  minify: true,
  legalComments: "none",
  // Write a line break in a string as `\n`: the server drops empty lines.
  supported: { "template-literal": false },
};

const [module, script] = await Promise.all([
  build({ ...options, format: "esm", metafile: true, outfile: "client.js" }),
  build({ ...options, format: "iife", globalName: "reseed" }),
]);
const [{ exports }] = Object.values(module.metafile.outputs);
const [{ text }] = script.outputFiles;
const lines = [
  "// @ts-nocheck Written from protocol/client by `npm run bundle`. Do not edit.",
  text.trimEnd(),
  ...exports.sort().map((name) => `export const ${name} = reseed.${name};`),
  "",
];
const bundle = lines.join("\n");

if (!process.argv.includes("--check")) writeFileSync(target, bundle);
else if (readFileSync(target, "utf8") !== bundle) {
  console.error(`${target} differs from protocol/client; run \`npm run bundle\` there`);
  process.exitCode = 1;
}
