/**
 * Sends sessions of pi through reseed and back: `node through.mjs RESEED PI`, the server's binary and the folder into
 * which npm's `@mariozechner/pi-coding-agent` was installed.
 *
 * Each session is imported, opened over the socket, exported, continued, compacted and exported again while the server
 * runs. Then pi's own package loads the files: they contain every line of the original, pi leaves them unchanged, and
 * the context that pi builds from them is the one that reseed would send.
 */

import { execFile, spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { isDeepStrictEqual, promisify } from "node:util";
import { Wire, run } from "../wire.mjs";

const [reseed, folder] = process.argv.slice(2);
const { SessionManager, convertToLlm } = await import(
  pathToFileURL(join(folder, "node_modules/@mariozechner/pi-coding-agent/dist/index.js")).href
);

/** Old and new versions, branches, compactions, user commands, extension messages, unknown types. */
const SESSIONS = [
  "04-linear-tools",
  "13-bash",
  "17-one-compaction",
  "22-branches",
  "27-unknown-entry-types",
  "31-mixed-1",
  "36-v1-linear",
  "42-v2-tree",
];

const temp = await mkdtemp(join(tmpdir(), "reseed-pi-"));
process.on("exit", () => server?.kill());

const environment = {
  PATH: process.env.PATH,
  MODEL: "offline",
  RESEED_FIXED: "offline_word_millis=0",
  CONTEXT_WINDOW: "200000",
  WS_PORT: "0",
  LOG_LEVEL: "warn",
  DATABASE_URL: `sqlite://${join(temp, "reseed.db")}`,
};

const original = (name) => new URL(`../../fixtures/pi/sessions/${name}.jsonl`, import.meta.url).pathname;
const command = (...args) => promisify(execFile)(reseed, args, { env: environment, cwd: temp });
const lines = async (file) =>
  (await readFile(file, "utf8")).split("\n").filter((line) => line.trim()).map((line) => JSON.parse(line));

const ids = new Map(); // session ids by name
let server;
let address;
let wire;

const fail = (condition, message) => {
  if (!condition) throw new Error(message);
};

const ask = async (type, payload = {}, sessionId = undefined) => {
  const id = randomUUID();
  wire.send({ id, sessionId, type, payload });
  for (;;) {
    const frame = await wire.next();
    if (frame.re !== id) continue;
    wire.expect(frame.type !== "error", `${type}: ${JSON.stringify(frame.payload)}`);
    return frame.payload;
  }
};

const until = async (type) => {
  for (;;) {
    const frame = await wire.next();
    wire.expect(frame.type !== "compaction_failed", `the compaction failed: ${JSON.stringify(frame.payload)}`);
    if (frame.type === type) return frame.payload;
  }
};

const text = (parts) => parts.filter((part) => part.type === "text").map((part) => part.text);

/** Each program introduces a summary with its own sentence; the content is the same. */
const unframed = (said) => {
  const summary = /^[^<]*<summary>\n([^]*?)\n?<\/summary>$/.exec(said);
  // reseed escapes a tag within a record so that it cannot end the record.
  return summary ? `(summary) ${summary[1].trim().replaceAll("<\\", "<")}` : said;
};

/** Lists what reseed would send, each as who and what. A result that stands in for a missing one belongs to nobody. */
const ours = ({ envelope }) =>
  [...envelope.messages.cached, ...envelope.messages.uncached]
    .filter(({ entryId }) => entryId)
    .map(({ message: { role, content } }) => {
      if (role === "user") return [role, unframed(text(content).join(""))];
      if (role === "tool") return [role, content[0].toolCallId, content[0].output];
      const calls = content.filter((part) => part.type === "tool_call");
      return [role, text(content), calls.map((call) => [call.toolCallId, call.name, JSON.parse(call.arguments)])];
    });

/** Lists what pi would send, in the same form. Failed answers are left out, as in pi's own provider requests. */
const theirs = (manager) =>
  convertToLlm(manager.buildSessionContext().messages)
    .filter((message) => !["error", "aborted"].includes(message.stopReason))
    .map((message) => {
      const content = typeof message.content === "string" ? [{ type: "text", text: message.content }] : message.content;
      if (message.role === "user") return ["user", unframed(text(content).join(""))];
      if (message.role === "toolResult") return ["tool", message.toolCallId, text(content).join("\n")];
      const calls = content.filter((block) => block.type === "toolCall");
      return ["assistant", text(content), calls.map((call) => [call.id, call.name, call.arguments])];
    });

/** Checks that pi loads the file, leaves it unchanged, and builds the context that reseed would send. */
const checkLoaded = async (file, context, name) => {
  const before = await readFile(file, "utf8");
  const manager = SessionManager.open(file);
  fail((await readFile(file, "utf8")) === before, `${name}: pi has written to the file when it opened it`);
  const [left, right] = [ours(context), theirs(manager)];
  const at = left.findIndex((message, place) => !isDeepStrictEqual(message, right[place]));
  const shown = (message) => JSON.stringify(message)?.slice(0, 800);
  fail(at < 0, `${name}: message ${at} is ${shown(left[at])} in reseed, ${shown(right[at])} in pi`);
  fail(left.length === right.length, `${name}: ${left.length} messages in reseed, ${right.length} in pi`);
  return manager;
};

/**
 * Checks that every line of the original is in the export, equal and in order; a header and old versions in their
 * version 3 form.
 */
const checkLines = async (name, file) => {
  const [first, ...written] = await lines(file);
  fail(first.type === "session" && first.version === 3, `${name}: the header is ${JSON.stringify(first)}`);
  const [header, ...entries] = await lines(original(name));
  fail(isDeepStrictEqual(first, { ...header, version: 3 }), `${name}: the header was ${JSON.stringify(header)}`);
  const old = (header.version ?? 1) < 3;
  entries.forEach((entry, at) => {
    const found = written[at];
    // pi itself changes the lines of older versions: ids, parents, one role.
    const equal = old ? found.type === entry.type : isDeepStrictEqual(found, entry);
    fail(equal, `${name}: line ${at + 2} is ${JSON.stringify(found)}, was ${JSON.stringify(entry)}`);
  });
  return written.slice(entries.length);
};

const start = async () => {
  server = spawn(reseed, ["serve"], { env: environment, cwd: temp, stdio: ["ignore", "pipe", "inherit"] });
  let told = "";
  for await (const piece of server.stdout) {
    told += piece;
    address = /ws:\/\/[0-9.:]+/.exec(told)?.[0];
    if (address) break;
  }
  fail(address, `the server told ${told}`);
};

await run({
  "sessions are imported": async () => {
    for (const name of SESSIONS) {
      const { stdout } = await command("import", original(name));
      ids.set(name, /session (\S+), /.exec(stdout)[1]);
    }
  },
  "what is imported already, or is no session, is refused": async () => {
    for (const [file, why] of [
      [original("04-linear-tools"), "--new-id"],
      [new URL("../../../README.md", import.meta.url).pathname, "no session|broken"],
      [original("28-malformed-lines"), "line 7 is broken.*line 15 is broken.*--skip-broken"],
    ]) {
      const refused = await command("import", file).then(() => undefined, (error) => error.stdout);
      fail(new RegExp(why).test(refused), `${file}: ${refused}`);
    }
    const { stdout } = await command("import", "--skip-broken", original("28-malformed-lines"));
    fail(/line 7 is broken[^\n]*skipped/.test(stdout), stdout);
  },
  "the server opens them, and import is refused while it runs": async () => {
    await start();
    wire = await Wire.open("npm", `${address}/ws`, ["reseed.v2"]);
    await ask("hello", { protocolVersion: 2, clientId: randomUUID(), client: { name: "through.mjs", version: "1" } });
    const refused = await command("import", original("05-no-usage")).then(() => undefined, (error) => error.stderr);
    fail(/in use/.test(refused) && /stop the server/.test(refused), refused);
  },
  "exported as they are, pi builds the context that reseed would send": async () => {
    for (const [name, sessionId] of ids) {
      await ask("open_session", {}, sessionId);
      const context = await ask("get_context", {}, sessionId);
      const file = join(temp, `${name}.jsonl`);
      await command("export", sessionId, "--output", file);
      fail((await checkLines(name, file)).length === 0, `${name}: there are more lines than in the original`);
      await checkLoaded(file, context, name);
      await ask("close_session", {}, sessionId);
    }
  },
  "they go on, are compacted, and pi still builds the same context": async () => {
    for (const [name, sessionId] of ids) {
      await ask("open_session", {}, sessionId);
      for (const input of ["Repeat after me: fair winds", "Repeat after me: following seas"]) {
        await ask("user_input", { input }, sessionId);
        const { status } = await until("turn_finished");
        fail(status === "completed", `${name}: the turn ended ${status}`);
      }
      await ask("start_compaction", { instructions: "Keep the names of files." }, sessionId);
      const { summary } = await until("context_compacted");
      await ask("user_input", { input: "Repeat after me: land ahoy" }, sessionId);
      await until("turn_finished");
      const context = await ask("get_context", {}, sessionId);
      const file = join(temp, `${name}-compacted.jsonl`);
      await command("export", sessionId, "--output", file);
      const added = await checkLines(name, file);
      fail(added.some((line) => line.type === "compaction" && line.summary === summary), `${name}: no compaction`);
      const manager = await checkLoaded(file, context, name);
      const said = theirs(manager);
      fail(said[0][1].startsWith("(summary)"), `${name}: the context begins with ${said[0]}`);
      fail(isDeepStrictEqual(said.at(-1), ["assistant", ["land ahoy"], []]), `${name}: it ends with ${said.at(-1)}`);
      await ask("close_session", {}, sessionId);
    }
  },
  "pi goes on with such a file, and it comes back": async () => {
    const file = join(temp, "22-branches-compacted.jsonl");
    const manager = SessionManager.open(file);
    const id = manager.appendMessage({ role: "user", content: "Said in pi.", timestamp: Date.now() });
    manager.appendLabelChange(id, "from pi");
    wire.close();
    server.kill("SIGTERM");
    await new Promise((resolve) => server.on("exit", resolve));
    server = undefined;
    const { stdout } = await command("import", "--new-id", file);
    const again = join(temp, "again.jsonl");
    await command("export", /session (\S+), /.exec(stdout)[1], "--output", again);
    const [first, second] = [await lines(file), await lines(again)];
    const at = first.findIndex((line, place) => !isDeepStrictEqual(line, second[place]));
    fail(at < 0, `line ${at + 1} was ${JSON.stringify(first[at])}, is ${JSON.stringify(second[at])}`);
    fail(first.length === second.length, `${first.length} lines became ${second.length}`);
    fail(isDeepStrictEqual(theirs(SessionManager.open(again)), theirs(manager)), "the context is another");
    await rm(temp, { recursive: true });
  },
});
