/** Builds `dist/`: the modules with their types, including the wire types, and the licences. */

import { execFileSync } from "node:child_process";
import { copyFileSync, existsSync, rmSync } from "node:fs";
import { fileURLToPath } from "node:url";

const folder = fileURLToPath(new URL("..", import.meta.url));
const LICENCES = ["LICENSE-APACHE", "LICENSE-MIT"];

// The licences and the wire types live outside this folder.
for (const needed of [...LICENCES.map((licence) => `../../${licence}`), "../typescript/index.ts"]) {
  if (existsSync(`${folder}${needed}`)) continue;
  console.error(`${folder}${needed} is missing; build in protocol/client of a checkout of the whole repository`);
  process.exit(1);
}
rmSync(`${folder}dist`, { recursive: true, force: true });
execFileSync(process.execPath, [`${folder}node_modules/typescript/bin/tsc`, "--project", folder], { stdio: "inherit" });
for (const licence of LICENCES) copyFileSync(`${folder}../../${licence}`, `${folder}dist/${licence}`);
