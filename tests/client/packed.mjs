/** The package as users get it: packed once, and installed where a test wants it. */

import { execFileSync } from "node:child_process";
import { cpSync, mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

/** The folder of the package. */
export const PACKAGE = fileURLToPath(new URL("../../protocol/client/", import.meta.url));

/** Runs a program and returns its output; if it fails, the output is in the error. */
export function run(program, args, options = {}) {
  try {
    return execFileSync(program, args, { encoding: "utf8", stdio: "pipe", ...options });
  } catch (error) {
    throw new Error(`${program} ${args.join(" ")}\n${error.stdout}${error.stderr}`, { cause: error });
  }
}

/** Runs one of the package's own tools. */
export function tool(name, args, options) {
  return run(process.execPath, [join(PACKAGE, "node_modules/.bin", name), ...args], options);
}

/** Creates a folder that is removed at the end of the test. */
export function temporary(context) {
  const folder = mkdtempSync(join(tmpdir(), "reseed-client-"));
  context.after(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

/** The tarball, made when it is first asked for and removed with the process. */
let tarball;

/** Packs the package as `npm pack` does, once for each test file. Returns the tarball. */
export function pack() {
  if (tarball) return tarball;
  const folder = mkdtempSync(join(tmpdir(), "reseed-client-"));
  process.on("exit", () => rmSync(folder, { recursive: true, force: true }));
  const [{ filename }] = JSON.parse(
    run("npm", ["pack", "--json", "--ignore-scripts", "--pack-destination", folder], { cwd: PACKAGE }),
  );
  return (tarball = join(folder, filename));
}

/** Installs the packed package into `node_modules` of a folder. */
export function unpack(tarball, folder) {
  const target = join(folder, "node_modules/reseed-client");
  rmSync(target, { recursive: true, force: true });
  mkdirSync(target, { recursive: true });
  run("tar", ["-xzf", tarball, "--strip-components=1", "-C", target]);
}

/** Copies a folder without its installed packages. */
export function copied(source, target) {
  cpSync(source, target, { recursive: true, filter: (path) => !path.includes("node_modules") });
}
