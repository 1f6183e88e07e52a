/**
 * Runs tests/examples/request_context.mts as written: `node request_context.mjs ws://HOST:PORT`. It compiles against
 * the protocol's types, and what its hook adds is in the request it is called for and in no later one.
 */

import { execFile } from "node:child_process";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { randomUUID } from "node:crypto";
import { Wire, run } from "./wire.mjs";

// `import` does not search NODE_PATH, `require` does.
const ts = createRequire(import.meta.url)("typescript");

const [address] = process.argv.slice(2);
const example = fileURLToPath(new URL("../examples/request_context.mts", import.meta.url));

/** Maximum milliseconds for the example on a busy machine; reached only if it hangs. */
const EXAMPLE_MS = 60_000;

const QUESTION = "What is the berth of the ferry?";
const FACT = "The berth of the ferry is number K7-tango-42.";

/** Runs the example with these arguments, on a Node that may not support TypeScript. */
async function runExample(...args) {
  const folder = await mkdtemp(join(tmpdir(), "reseed-example-"));
  try {
    const { outputText } = ts.transpileModule(await readFile(example, "utf8"), {
      compilerOptions: { module: ts.ModuleKind.ESNext, target: ts.ScriptTarget.ES2022 },
    });
    const file = join(folder, "request_context.mjs");
    await writeFile(file, outputText);
    const node = promisify(execFile)(process.execPath, [...process.execArgv, file, ...args], { timeout: EXAMPLE_MS });
    return await node.catch((failed) => failed);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

let wire;
let session;

const ask = async (type, payload, sessionId = undefined) => {
  const id = randomUUID();
  wire.send({ id, sessionId, type, payload });
  for (;;) {
    const frame = await wire.next();
    if (frame.re === id) return frame.payload;
  }
};

await run({
  "it compiles against the types": async () => {
    const options = {
      noEmit: true,
      strict: true,
      noImplicitReturns: true,
      // What Node needs to run it without a compiler.
      erasableSyntaxOnly: true,
      verbatimModuleSyntax: true,
      target: ts.ScriptTarget.ES2022,
      lib: ["lib.es2022.d.ts", "lib.dom.d.ts"],
      module: ts.ModuleKind.NodeNext,
      moduleResolution: ts.ModuleResolutionKind.NodeNext,
      types: [],
    };
    const wrong = ts.getPreEmitDiagnostics(ts.createProgram([example], options));
    const faults = wrong.map((one) => ts.flattenDiagnosticMessageText(one.messageText, "\n"));
    if (faults.length > 0) throw new Error(`the compiler says ${faults.join("; ")}`);
    // Connect only now: while the compiler runs, nothing here answers the server's pings.
    wire = await Wire.open("builtin", `${address}/ws`, ["reseed.v2"]);
    await ask("hello", { protocolVersion: 2 });
  },
  "what its hook adds is in the request": async () => {
    const { stdout, stderr } = await runExample(`${address}/ws`, QUESTION, FACT);
    const [first, answer, ...more] = stdout.trim().split("\n");
    wire.expect(first?.startsWith("session "), `it prints ${stdout}${stderr}`);
    session = first.slice("session ".length);
    wire.expect(answer?.includes("K7-tango-42"), `the answer is ${answer}`);
    wire.same([more, stderr], [[], ""], "what else it prints");
  },
  "it is in no later request, and in the history as ephemeral": async () => {
    const opened = await ask("open_session", {}, session);
    const added = opened.entries.filter((entry) => entry.type === "ephemeral");
    wire.same(added.map((entry) => entry.transformerName), ["place"], "what was added for one request");
    wire.expect(JSON.stringify(added).includes(FACT), "it is logged as it was");
    const said = (messages) => messages.map((one) => [one.message.role, one.message.content[0].text]);
    const { envelope } = await ask("get_context", {}, session);
    const answer = opened.entries.find((entry) => entry.role === "assistant").content[0].text;
    wire.same(said(envelope.messages.cached), [["user", QUESTION], ["assistant", answer]], "the next request");
    wire.same(envelope.messages.uncached, [], "what is sent behind it");
  },
  "without a server it fails and says so": async () => {
    const failed = await runExample(`${address}/nowhere`);
    wire.same([failed.code, failed.stdout], [1, ""], "its exit code and its output");
    wire.expect(failed.stderr.includes("there is no server at"), `it says ${failed.stderr}`);
    await wire.close();
  },
});
