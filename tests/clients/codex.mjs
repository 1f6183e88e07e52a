/**
 * Codex CLI, the real program, with reseed as its model provider and a scripted model behind it, over HTTP and over a
 * WebSocket: a task of several tool rounds, a server that is killed, past reseed's window, compacted by reseed at
 * Codex's request, resumed; images, MCP servers, patches and code of the model. An MCP server is expected in tests/mcp.
 * Usage: `node codex.mjs RESEED CODEX`, the two binaries. Prints one line a step.
 */

import assert from "node:assert/strict";
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { inTemporaryFolder, runToEnd, startReseed } from "./server.mjs";
import { startModel, textOf } from "./scripted_model.mjs";

const [reseed, codex] = process.argv.slice(2);

const MODEL = "scripted";
/** What the user says first, with a fact that no compaction may lose. */
const TASK = "My code is K7-tango-42. Do the steps of the plan.";
/** What the user says when the session is resumed. */
const AGAIN = "One more step, please.";
/** What the model writes in every summary, in the form that reseed asks for. */
const SUMMARY = "## Goal\n- Do the steps of the plan.\n\n## Critical Context\n- The model wrote this summary.";
/** Far more requests than any step here takes; reached only if Codex compacts again and again. */
const REQUESTS_MAX = 40;

const all = (request) => request.messages.map(textOf).join("\n");
/** True for a request that asks for a summary: reseed's own, or Codex's, which is the user's last message. */
const asksForSummary = (request) =>
  /^You write summaries/.test(textOf(request.messages[0])) ||
  /CONTEXT CHECKPOINT COMPACTION/.test(textOf(request.messages.at(-1)));
/** The newest request for an answer; one for a summary may come later, since some are made ahead of time. */
const newest = (model) => model.requests.findLast((request) => !asksForSummary(request));
/** The number of the last step that was done, as the conversation tells it. */
const doneIn = (text) => Math.max(0, ...Array.from(text.matchAll(/step-(\d+)-done$/gm), (found) => Number(found[1])));

/**
 * Answers like a model with a plan of `rounds` commands, each printing some thousand tokens, and one more if asked for.
 * It knows from the conversation alone which steps were done, so that a lost result is a repeated step.
 */
function planOf(rounds, lines) {
  let asked = 0;
  return (request) => {
    assert.ok(++asked < REQUESTS_MAX, "there are too many requests");
    const text = all(request);
    const done = doneIn(text);
    if (asksForSummary(request)) return { text: `${SUMMARY}\n- step-${done}-done` };
    const last = text.includes(AGAIN) ? rounds + 1 : rounds;
    if (done >= last) return { text: "All steps are done." };
    const cmd = `seq 1 ${lines}; echo step-${done + 1} >> done.txt; echo step-${done + 1}-done`;
    return { text: `Step ${done + 1}.`, calls: [{ name: "exec_command", arguments: { cmd } }] };
  };
}

/** Calls the tool whose name ends with `name`, once, and checks its result. */
function callsOnce(name, given, result) {
  return (request) => {
    const last = request.messages.at(-1);
    if (last.role === "tool") {
      assert.match(textOf(last), result);
      return { text: "That was it." };
    }
    const names = request.tools.map((tool) => tool.function.name);
    const offered = names.find((offered) => offered === name || offered.endsWith(`_${name}`));
    assert.ok(offered, `${name} is not offered; these are: ${names}`);
    return { calls: [{ name: offered, arguments: given }] };
  };
}

/** Asserts that a request has a text; the message shows the end of the request only, since all of it fills pages. */
function has(request, text) {
  assert.ok(all(request).includes(text), `"${text}" is not in a request that ends with: ${all(request).slice(-600)}`);
}

/** Starts a model and a server, gives `use` a function that runs Codex in a project of its own, and stops them. */
async function withCodex({ socket, name = MODEL, windowTokens, script, provider = {}, settings = {}, mcp = false, use }) {
  await inTemporaryFolder(async (folder) => {
    const model = await startModel({ name, windowTokens, script });
    // Codex keeps compactions for longer than a server runs.
    const environment = { OPENAI_BASE_URL: model.url, MODEL: name };
    let server = await startReseed(reseed, folder, environment);
    const port = new URL(server.url).port;
    const restart = async () => {
      await server.stop("SIGKILL");
      server = await startReseed(reseed, folder, { ...environment, WS_PORT: port });
    };
    const home = join(folder, "codex");
    const project = join(folder, "project");
    await mkdir(home);
    await mkdir(project);
    const toml = (table) => Object.entries(table).map(([key, value]) => `${key} = ${JSON.stringify(value)}\n`).join("");
    const everything = fileURLToPath(new URL("../mcp/node_modules/.bin/mcp-server-everything", import.meta.url));
    const config =
      toml({ model: name, model_provider: "reseed", check_for_update_on_startup: false, ...settings }) +
      "[model_providers.reseed]\n" +
      toml({
        name: "reseed",
        base_url: `${server.url}/v1`,
        wire_api: "responses",
        supports_websockets: socket,
        request_max_retries: 0,
        stream_max_retries: 0,
        ...provider,
      }) +
      (mcp ? `[mcp_servers.everything]\n${toml({ command: everything })}` : "");
    await writeFile(join(home, "config.toml"), config);
    const env = { PATH: process.env.PATH, HOME: folder, CODEX_HOME: home };
    const run = async (...args) => {
      const flags = ["--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"];
      const { status, out, err } = await runToEnd(codex, ["exec", ...args, ...flags], { cwd: project, env });
      const told = (out + err).slice(-2_000);
      assert.equal(status, 0, told);
      const events = out.split("\n").filter(Boolean).map((line) => JSON.parse(line));
      assert.equal(events.at(-1).type, "turn.completed", told);
      return { usage: events.at(-1).usage, items: events.filter((e) => e.type === "item.completed").map((e) => e.item) };
    };
    try {
      await use({ run, model, restart, project, done: () => readFile(join(project, "done.txt"), "utf8") });
      assert.deepEqual(model.broken, []);
    } finally {
      await server.stop();
      model.close();
    }
  });
}

const stepsTo = (count) => Array.from({ length: count }, (_, at) => `step-${at + 1}\n`).join("");
const commandsOf = (items) => items.filter((item) => item.type === "command_execution");
const saidIn = (items) => items.filter((item) => item.type === "agent_message").map((item) => item.text);

const over = (socket) => ({
  async "does a task of three tool rounds, and is resumed"() {
    await withCodex({
      socket,
      windowTokens: 200_000,
      script: planOf(3, 100),
      async use({ run, model, done }) {
        const first = await run(TASK);
        assert.deepEqual(saidIn(first.items), ["Step 1.", "Step 2.", "Step 3.", "All steps are done."]);
        assert.deepEqual(commandsOf(first.items).map((item) => item.exit_code), [0, 0, 0]);
        assert.equal(await done(), stepsTo(3));
        assert.ok(first.usage.input_tokens > 0 && first.usage.output_tokens > 0, JSON.stringify(first.usage));
        const asked = model.requests.length;
        assert.equal(asked, 4);
        const again = await run("resume", "--last", AGAIN);
        assert.equal(saidIn(again.items).at(-1), "All steps are done.");
        assert.equal(await done(), stepsTo(4));
        // The model is told of everything, once.
        const told = all(newest(model));
        for (const fact of [TASK, "step-1-done", "step-2-done", "All steps are done.", AGAIN]) {
          assert.equal(told.split(fact).length, 2, fact);
        }
        assert.equal(model.requests.filter(asksForSummary).length, 0);
      },
    });
  },

  async "goes on when the server is killed in the middle of an answer"() {
    const plan = planOf(3, 10);
    let asked = 0;
    let kill;
    let restarted;
    await withCodex({
      socket,
      windowTokens: 200_000,
      script: (request) => {
        if (++asked === 2) restarted = kill();
        return plan(request);
      },
      provider: { request_max_retries: 5, stream_max_retries: 5 },
      async use({ run, restart, done }) {
        kill = restart;
        await run(TASK);
        await restarted;
        assert.equal(await done(), stepsTo(3));
      },
    });
  },

  async "works past the window of the server, which Codex does not know"() {
    const rounds = 5;
    await withCodex({
      socket,
      windowTokens: 24_000,
      script: planOf(rounds, 1_200),
      settings: { model_context_window: 1_000_000 },
      async use({ run, model, done }) {
        const { items } = await run(TASK);
        assert.equal(saidIn(items).at(-1), "All steps are done.");
        assert.equal(await done(), stepsTo(rounds));
        assert.ok(model.requests.some(asksForSummary), "nothing was summarised");
        has(newest(model), "K7-tango-42");
        await run("resume", "--last", AGAIN);
        assert.equal(await done(), stepsTo(rounds + 1));
        has(newest(model), "K7-tango-42");
      },
    });
  },

  async "has its context compacted by the server when its own window is full"() {
    await withCodex({
      socket,
      windowTokens: 200_000,
      script: planOf(4, 2_000),
      // Codex asks only providers of this name for compactions, and compacts by itself with others.
      provider: { name: "OpenAI" },
      settings: { model_context_window: 16_000, model_auto_compact_token_limit: 12_000 },
      async use({ run, model, restart, done }) {
        const { items } = await run(TASK);
        assert.equal(saidIn(items).at(-1), "All steps are done.");
        assert.equal(await done(), stepsTo(4));
        isCompacted(model);
        await restart();
        const again = await run("resume", "--last", AGAIN);
        assert.equal(saidIn(again.items).at(-1), "All steps are done.");
        assert.equal(await done(), stepsTo(5));
        isCompacted(model);
      },
    });
  },

  async "shows the model an image, given by the user or found by a tool"() {
    const path = fileURLToPath(new URL("../../docker/page.png", import.meta.url));
    const images = ({ messages }) =>
      messages.flatMap(({ content }) => (Array.isArray(content) ? content : [])).filter((part) => part.type === "image_url");
    await withCodex({
      socket,
      windowTokens: 400_000,
      script: (request) => {
        if (images(request).length === 2) return { text: "I see both." };
        return { text: "I see one.", calls: [{ name: "view_image", arguments: { path } }] };
      },
      async use({ run, model }) {
        const { items } = await run(TASK, "--image", path);
        assert.equal(saidIn(items).at(-1), "I see both.");
        assert.equal(model.requests.length, 2);
        await run("resume", "--last", AGAIN);
        assert.equal(images(newest(model)).length, 2);
      },
    });
  },

  async "calls tools of its MCP servers"() {
    await withCodex({
      socket,
      windowTokens: 200_000,
      mcp: true,
      script: callsOnce("get_sum", { a: 2, b: 40 }, /sum of 2 and 40 is 42/),
      async use({ run }) {
        const { items } = await run(TASK);
        const [call] = items.filter((item) => item.type === "mcp_tool_call");
        assert.deepEqual([call.server, call.tool, call.status], ["everything", "get-sum", "completed"]);
        assert.equal(saidIn(items).at(-1), "That was it.");
      },
    });
  },

  async "finds tools of its MCP servers by a search"() {
    await withCodex({
      socket,
      // To this model, Codex offers a search instead.
      name: "gpt-5.5",
      windowTokens: 200_000,
      mcp: true,
      script: ({ messages, tools }) => {
        const results = messages.filter(({ role }) => role === "tool").map(textOf);
        const newest = results.at(-1) ?? "No tools were found.";
        // Codex finds none as long as its MCP server is starting.
        if (newest === "No tools were found.") {
          return { calls: [{ name: "tool_search", arguments: { query: "sum of numbers" } }] };
        }
        if (!newest.startsWith("These tools")) return { text: newest };
        const found = tools.map((tool) => tool.function.name).find((name) => name.endsWith("_get_sum"));
        assert.ok(found && newest.includes(found), newest);
        return { calls: [{ name: found, arguments: { a: 2, b: 40 } }] };
      },
      async use({ run }) {
        const { items } = await run(TASK);
        assert.match(saidIn(items).at(-1), /sum of 2 and 40 is 42/);
      },
    });
  },

  async "applies a patch that the model writes as free text"() {
    const input = "*** Begin Patch\n*** Add File: done.txt\n+patched\n*** End Patch\n";
    await withCodex({
      socket,
      // Codex knows models by their names; to this one it offers the tool.
      name: "gpt-5.5",
      windowTokens: 200_000,
      script: callsOnce("apply_patch", { input }, /Success/),
      async use({ run, done }) {
        const { items } = await run(TASK);
        assert.equal(saidIn(items).at(-1), "That was it.");
        assert.equal(await done(), "patched\n");
      },
    });
  },

  async "runs code that the model writes, with tools that are in the input"() {
    const input = "text(await tools.exec_command({ cmd: 'echo step >> done.txt && echo done-it' }))";
    await withCodex({
      socket,
      name: "gpt-5.6-sol",
      windowTokens: 200_000,
      script: callsOnce("exec", { input }, /done-it/),
      async use({ run, done }) {
        const { items } = await run(TASK);
        assert.equal(saidIn(items).at(-1), "That was it.");
        assert.equal(await done(), "step\n");
      },
    });
  },

  async "compacts by itself, and goes on"() {
    await withCodex({
      socket,
      windowTokens: 200_000,
      script: planOf(4, 2_000),
      settings: { model_context_window: 16_000, model_auto_compact_token_limit: 12_000 },
      async use({ run, model, done }) {
        const { items } = await run(TASK);
        assert.equal(saidIn(items).at(-1), "All steps are done.");
        assert.equal(await done(), stepsTo(4));
        isCompacted(model);
      },
    });
  },
});

/** The newest request has the model's summary and what the user said, and is smaller than the largest one before. */
function isCompacted(model) {
  const asked = model.requests.filter((request) => !asksForSummary(request));
  const sizes = asked.map((request) => all(request).length);
  has(newest(model), "The model wrote this summary");
  has(newest(model), "K7-tango-42");
  assert.ok(sizes.some((size, at) => at > 0 && size < sizes[at - 1] / 1.2), `no request was smaller: ${sizes}`);
}

for (const [way, socket] of [["HTTP", false], ["WebSocket", true]]) {
  for (const [name, step] of Object.entries(over(socket))) {
    try {
      await step();
      console.log(`ok over ${way} Codex ${name}`);
    } catch (error) {
      console.log(`failed over ${way} Codex ${name}: ${error.stack}`);
      process.exitCode = 1;
    }
  }
}
