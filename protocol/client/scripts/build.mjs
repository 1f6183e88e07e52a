/** Builds `dist/`: the modules and their types, those of the wire among them, and the licences. */

import { execFileSync } from "node:child_process";
import { copyFileSync, rmSync } from "node:fs";
import { fileURLToPath } from "node:url";

const folder = fileURLToPath(new URL("..", import.meta.url));
rmSync(`${folder}dist`, { recursive: true, force: true });
execFileSync(process.execPath, [`${folder}node_modules/typescript/bin/tsc`, "--project", folder], { stdio: "inherit" });
for (const licence of ["LICENSE-APACHE", "LICENSE-MIT"])
  copyFileSync(`${folder}../../${licence}`, `${folder}dist/${licence}`);
