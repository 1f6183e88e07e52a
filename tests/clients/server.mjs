/** Servers of a test's own: reseed's binary in a temporary folder, in front of a model server that the test scripts. */

import { spawn } from "node:child_process";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { createWriteStream } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const running = new Set();
process.on("exit", () => running.forEach((child) => child.kill("SIGKILL")));

/** Starts a program that is killed with this process at the latest, and gives the promise of its end. */
export function start(program, args, options) {
  const child = spawn(program, args, { ...options, stdio: ["ignore", "pipe", "pipe"] });
  running.add(child);
  const ended = new Promise((resolve) => {
    child.on("close", resolve);
    child.on("error", (error) => resolve(error.message));
  });
  ended.then(() => running.delete(child));
  return { child, ended };
}

/** Creates a folder, gives it to `use`, and removes it. */
export async function inTemporaryFolder(use) {
  const folder = await mkdtemp(join(tmpdir(), "reseed-client-"));
  try {
    return await use(folder);
  } finally {
    await rm(folder, { recursive: true, force: true, maxRetries: 5 });
  }
}

/**
 * Starts the server and waits for its first line. Its database and log are in `folder`; of this environment it gets
 * PATH only.
 */
export async function startReseed(binary, folder, settings) {
  const log = join(folder, "reseed.log");
  const env = {
    PATH: process.env.PATH,
    WS_PORT: "0",
    LOG_LEVEL: "debug",
    DATABASE_URL: `sqlite://${join(folder, "reseed.db")}`,
    ...settings,
  };
  const { child, ended } = start(binary, ["serve"], { env, cwd: folder });
  child.stderr.pipe(createWriteStream(log));
  let told = "";
  let address;
  child.stdout.setEncoding("utf8");
  await new Promise((resolve) => {
    child.stdout.on("data", (piece) => {
      told += piece;
      address ??= /http:\/\/[0-9.:]+/.exec(told)?.[0];
      if (address) resolve();
    });
    ended.then(resolve);
  });
  if (!address) throw new Error(`the server did not start: ${told}${await readFile(log, "utf8")}`);
  return {
    url: address,
    log: () => readFile(log, "utf8"),
    async stop(signal = "SIGTERM") {
      child.kill(signal);
      await ended;
    },
  };
}

/** Runs a program to its end and returns its status and what it printed. */
export async function runToEnd(program, args, options) {
  const { child, ended } = start(program, args, options);
  const printed = { out: "", err: "" };
  child.stdout.setEncoding("utf8").on("data", (piece) => (printed.out += piece));
  child.stderr.setEncoding("utf8").on("data", (piece) => (printed.err += piece));
  return { status: await ended, ...printed };
}
