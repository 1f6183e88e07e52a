/**
 * The requests in `tests/fixtures/requests` are the bytes that the server sends. They have the types that the official
 * SDKs declare: `node request_types.mjs`. TypeScript also names a field that a type does not have.
 */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";

// `import` does not search NODE_PATH, `require` does.
const require = createRequire(import.meta.url);
const ts = require("typescript");

/** The type of each API's request, and its SDK. */
const types = {
  chat: ["ChatCompletionCreateParamsStreaming", "openai/resources/chat/completions"],
  messages: ["MessageCreateParamsStreaming", "@anthropic-ai/sdk/resources/messages"],
  responses: ["ResponseCreateParamsStreaming", "openai/resources/responses/responses"],
};

// Where modules are found. The file itself need not exist.
const folder = join(dirname(require.resolve("typescript/package.json")), "../..");
const options = {
  module: ts.ModuleKind.NodeNext,
  moduleResolution: ts.ModuleResolutionKind.NodeNext,
  target: ts.ScriptTarget.ES2022,
  strict: true,
  noEmit: true,
  skipLibCheck: true,
  types: [],
};

/** Compiles a text as a module; returns what the compiler finds. */
function compiled(text) {
  const file = join(folder, "requests.mts");
  const host = ts.createCompilerHost(options);
  const { readFile, fileExists, getSourceFile } = host;
  host.fileExists = (name) => name === file || fileExists(name);
  host.readFile = (name) => (name === file ? text : readFile(name));
  host.getSourceFile = (name, version, ...rest) =>
    name === file ? ts.createSourceFile(name, text, version) : getSourceFile(name, version, ...rest);
  const program = ts.createProgram([file], options, host);
  const found = [...program.getSyntacticDiagnostics(), ...program.getSemanticDiagnostics()];
  return found.map(({ messageText }) => ts.flattenDiagnosticMessageText(messageText, "\n"));
}

/** Declares a request with its type, in one line. */
const declared = (name, api, request) =>
  `export const ${name}: ${types[api][0]} = ${JSON.stringify(request).replace(/[\u2028\u2029]/g, " ")};`;

/** Adds what the SDK's types demand of answers and OpenAI's server does not: Codex CLI sends answers without it. */
function complete(item) {
  if (item.type === "reasoning") delete item.status;
  if (item.role !== "assistant") return;
  Object.assign(item, { id: "msg_1", status: "completed" });
  for (const part of item.content) part.annotations = [];
}

const lines = Object.values(types).map(([type, module]) => `import type { ${type} } from "${module}";`);
for (const api of Object.keys(types)) {
  const request = JSON.parse(readFileSync(new URL(`../fixtures/requests/${api}.json`, import.meta.url), "utf8"));
  request.input?.forEach(complete);
  // The newest models take none. A server that refuses it is asked once more without it.
  if (api === "messages") delete request.temperature;
  lines.push(declared(api, api, request));
  // Each type is one that names what is wrong.
  const { model: modell, ...rest } = request;
  lines.push("// @ts-expect-error", declared(`${api}_wrong`, api, { ...rest, modell }));
}
assert.deepEqual(compiled(lines.join("\n")), []);
for (const api of Object.keys(types)) console.log(`ok a request of ${api} has the type of its SDK`);
