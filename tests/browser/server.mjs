/**
 * The real server for the tests: on loopback, with the offline model without delays, and its history in a folder of its
 * own.
 */

import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const BINARY = process.env.RESEED_BIN ?? fileURLToPath(new URL("../../target/debug/reseed", import.meta.url));
/** Milliseconds within which a server must have started. */
const START_MS = 60_000;

export class Server {
  /**
   * @param {Record<string, string>} settings
   * @param {string} [example] an example of the crate to run instead of the server itself; it has its own settings
   */
  constructor(settings = {}, example) {
    this.settings = settings;
    this.binary = example === undefined ? BINARY : join(dirname(BINARY), "examples", example);
    this.folder = null;
    this.port = "0";
    this.child = null;
    this.url = "";
  }

  /** Starts the server; a restart keeps port and history. */
  async start() {
    if (!existsSync(this.binary)) throw new Error(`there is no server at ${this.binary}: build it (cargo build --bins --examples), or set RESEED_BIN`);
    this.folder ??= await mkdtemp(join(tmpdir(), "reseed-page-"));
    // Tests override the server's constants by the names of its fields.
    const { OFFLINE_WORD_MILLIS: pace = "0", ...settings } = this.settings;
    const env = {
      PATH: process.env.PATH, HOME: this.folder, HOST: "127.0.0.1", WS_PORT: this.port,
      DATABASE_URL: `sqlite://${join(this.folder, "reseed.db")}`, MODEL: "offline", RESEED_FIXED: `offline_word_millis=${pace}`, ...settings,
    };
    this.child = spawn(this.binary, [], { cwd: this.folder, env, stdio: ["ignore", "pipe", "pipe"] });
    let said = "";
    await new Promise((resolve, reject) => {
      const limit = setTimeout(() => reject(new Error(`the server did not start:\n${said}`)), START_MS);
      const listen = (chunk) => {
        said += chunk;
        const found = /http:\/\/127\.0\.0\.1:(\d+)/.exec(said);
        if (!found) return;
        clearTimeout(limit);
        this.port = found[1];
        this.url = `http://127.0.0.1:${found[1]}/`;
        resolve(undefined);
      };
      this.child.stdout.on("data", listen);
      this.child.stderr.on("data", listen);
      this.child.once("exit", (code) => reject(new Error(`the server ended with ${code}:\n${said}`)));
    });
    return this.url;
  }

  /** Ends the process. `SIGKILL` simulates a power cut. */
  async end(signal = "SIGTERM") {
    const { child } = this;
    if (!child || child.exitCode !== null || child.signalCode !== null) return;
    const ended = new Promise((resolve) => child.once("exit", resolve));
    child.kill(signal);
    await ended;
  }

  async remove() {
    await this.end("SIGKILL");
    if (this.folder) await rm(this.folder, { recursive: true, force: true });
  }
}
