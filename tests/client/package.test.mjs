/** The package as users get it: its contents, whether its types resolve, and whether the examples run on it. */

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { cpSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath, pathToFileURL } from "node:url";
import { Server } from "../browser/server.mjs";
import { copied, pack, PACKAGE, run, temporary, tool, unpack } from "./packed.mjs";
import { inBrowser, launch, WAIT_MS } from "./pages.mjs";

const HERE = fileURLToPath(new URL(".", import.meta.url));
const EXAMPLES = fileURLToPath(new URL("../examples/", import.meta.url));
/** TypeScript's own declarations are not ours to check, and take a third of the time. */
const OTHERS_UNCHECKED = "--skipDefaultLibCheck";

test("the tarball holds the modules, their types and the README, and nothing else", () => {
  const tarball = pack();
  const files = run("tar", ["-tzf", tarball])
    .trim()
    .split("\n")
    .map((file) => file.replace(/^package\//, ""));
  const others = files.filter((file) => !/^dist\/(client\/src|typescript)\/.*\.(js|d\.ts)$/.test(file));
  assert.deepEqual(others.sort(), ["README.md", "dist/LICENSE-APACHE", "dist/LICENSE-MIT", "package.json"]);
  const { dependencies, exports } = JSON.parse(readFileSync(join(PACKAGE, "package.json"), "utf8"));
  assert.equal(dependencies, undefined, "no dependency at run time");
  for (const entry of Object.values(exports)) {
    if (typeof entry === "string") continue;
    assert.equal(Object.keys(entry)[0], "types", "types come first");
    for (const path of Object.values(entry)) assert.ok(files.includes(path.replace("./", "")), path);
  }
});

test("publint and arethetypeswrong report nothing", () => {
  const tarball = pack();
  tool("publint", ["run", tarball, "--strict"]);
  tool("attw", [tarball, "--profile", "esm-only", "--no-emoji"]);
});

test("the frames of the fake server match the protocol's examples", () => {
  run(process.execPath, [join(PACKAGE, "scripts/examples.mjs"), "--check"]);
});

test("the page's copy of the client has all exports and matches the committed one", async (context) => {
  const script = join(PACKAGE, "scripts/bundle.mjs");
  const file = join(temporary(context), "client.mjs");
  run(process.execPath, [script, file]);
  const [bundled, packed] = await Promise.all([import(pathToFileURL(file)), import("reseed-client")]);
  assert.deepEqual(Object.keys(bundled), Object.keys(packed));
  // The server joins the page's modules line by line and understands no other form of them.
  const lines = readFileSync(file, "utf8").split("\n");
  const forms = lines.filter((line) => /^(import|export)\b/.test(line));
  assert.ok(forms.every((line) => /^export const \w+ = reseed\.\w+;$/.test(line)));
  // It drops lines that are empty or start like a comment.
  const lost = lines.slice(1, -1).filter((line) => /^\s*(\/\/|\/\*|$)/.test(line));
  assert.deepEqual(lost, []);
  run(process.execPath, [script, "--check"]);
});

test("Node imports every entry, and the README's example runs", async (context) => {
  const folder = temporary(context);
  unpack(pack(), folder);
  symlinkSync(join(HERE, "node_modules/ws"), join(folder, "node_modules/ws"));
  const entries = ["reseed-client", "reseed-client/ai-sdk", "reseed-client/testing"];
  const imports = entries.map((entry) => `await import("${entry}");`).join("\n");
  run(process.execPath, ["--input-type=module", "--eval", imports], { cwd: folder });
  const example = readmeExample();
  assert.ok(example.split("\n").length <= 22, "about twenty lines");
  writeFileSync(join(folder, "example.mjs"), example.replace('"ws://127.0.0.1:8080"', "process.env.RESEED_URL"));
  const server = new Server();
  try {
    const RESEED_URL = (await server.start()).replace(/^http/, "ws").replace(/\/$/, "");
    const said = run(process.execPath, ["example.mjs"], {
      cwd: folder,
      env: { ...process.env, RESEED_URL },
      timeout: WAIT_MS,
    });
    assert.match(said, /Miso/);
  } finally {
    await server.remove();
  }
});

test("the types hold their promises under every module resolution", (context) => {
  const folder = temporary(context);
  cpSync(join(HERE, "react19/node_modules"), join(folder, "node_modules"), { recursive: true });
  unpack(pack(), folder);
  for (const name of ["ws", "node"])
    symlinkSync(join(HERE, "node_modules/@types", name), join(folder, "node_modules/@types", name));
  const files = ["types.mts", "sockets.mts", "sockets-dom.mts"];
  for (const file of files) cpSync(join(HERE, file), join(folder, file));
  files.push("readme.mts");
  writeFileSync(join(folder, "readme.mts"), readmeExample());
  const options = ["--target", "es2022", "--strict", "--noEmit", "--types", "node", OTHERS_UNCHECKED];
  const lib = ["--lib", "es2022,dom,dom.iterable"];
  tool("tsc", [...options, ...lib, "--module", "nodenext", ...files], { cwd: folder });
  tool("tsc", [...options, ...lib, "--module", "esnext", "--moduleResolution", "bundler", ...files], { cwd: folder });
  // A Node program lacks the DOM types.
  const inNode = ["sockets.mts", "readme.mts"];
  tool("tsc", [...options, "--lib", "es2022", "--module", "nodenext", ...inNode], { cwd: folder });
});

test("without the rest of the repository, the build says what it needs", (context) => {
  const folder = temporary(context);
  for (const part of ["src", "scripts", "package.json", "tsconfig.json"])
    cpSync(join(PACKAGE, part), join(folder, part), { recursive: true });
  assert.throws(() => run(process.execPath, [join(folder, "scripts/build.mjs")]), {
    message: /LICENSE-APACHE is missing; build in protocol\/client of a checkout of the whole repository/,
  });
});

test("the web example passes tsc and runs in a browser, from another origin, with tickets", async (context) => {
  const folder = temporary(context);
  copied(join(EXAMPLES, "web"), folder);
  unpack(pack(), folder);
  const lines = ["index.html", "chat.js"].map((file) => readFileSync(join(folder, file), "utf8").split("\n").length);
  assert.ok(lines[0] + lines[1] < 100, `${lines} lines`);
  tool("tsc", ["--project", "jsconfig.json", OTHERS_UNCHECKED], { cwd: folder });
  await inBrowser(folder, async (page) => {
    await page.fill("input", "My cat is called Miso.");
    await page.click("button");
    await page.waitForFunction(
      () =>
        document.querySelectorAll("li.assistant").length === 1 &&
        /\d % full/.test(document.querySelector("[role=status]").textContent),
      null,
      { timeout: WAIT_MS },
    );
    await page.fill("input", "Use the clock tool.");
    await page.click("button");
    await page.waitForFunction(() => /GMT/.test(document.body.innerText), null, { timeout: WAIT_MS });
    const shown = () => page.$$eval("li", (lines) => lines.map((line) => line.textContent));
    await page.waitForFunction(() => document.querySelectorAll("li.assistant").length === 3, null, {
      timeout: WAIT_MS,
    });
    const before = await shown();
    await page.reload();
    await page.waitForFunction((count) => document.querySelectorAll("li").length === count, before.length, {
      timeout: WAIT_MS,
    });
    assert.deepEqual(await shown(), before, "a reload shows the same");
    const tab = (of) => of.evaluate(() => sessionStorage.getItem("reseed-client-id"));
    const known = await tab(page);
    const [copy] = await Promise.all([page.waitForEvent("popup"), page.evaluate(() => void open(location.href))]);
    await copy.waitForSelector("li", { timeout: WAIT_MS });
    assert.equal(await tab(page), known);
    assert.notEqual(await tab(copy), known, "a duplicated tab is a client of its own");
    await copy.reload();
    await copy.waitForSelector("li", { timeout: WAIT_MS });
    await page.reload();
    await page.waitForSelector("li", { timeout: WAIT_MS });
    assert.equal(await tab(page), known, "a reloaded one stays itself");
  });
});

test("the React example passes with the types of React 18 and 19, and runs in a browser", async (context) => {
  const folder = temporary(context);
  copied(join(EXAMPLES, "react"), folder);
  for (const version of ["react18", "react19"]) {
    cpSync(join(HERE, version, "node_modules"), join(folder, "node_modules"), { recursive: true, force: true });
    unpack(pack(), folder);
    tool("tsc", ["--project", folder, OTHERS_UNCHECKED]);
  }
  const esbuild = join(PACKAGE, "node_modules/.bin/esbuild");
  run(esbuild, ["chat.tsx", "--bundle", "--format=esm", "--outfile=chat.js", "--log-level=error"], { cwd: folder });
  await inBrowser(folder, async (page) => {
    await page.click("text=New chat");
    await page.fill("input", "My cat is called Miso.");
    await page.click("text=Send");
    await page.waitForSelector("li.assistant", { timeout: WAIT_MS });
    await page.waitForFunction(() => document.querySelector("nav").textContent.includes("Miso"), null, {
      timeout: WAIT_MS,
    });
    assert.ok((await page.$eval("meter", (meter) => meter.value)) > 0);
  });
});

test("the project's README runs as written: its back end, and its front end on another origin", async (context) => {
  const folder = temporary(context);
  const text = readFileSync(new URL("../../README.md", import.meta.url), "utf8");
  const [backEnd, frontEnd] = ["back", "front"].map((end) => new RegExp(`\`\`\`js\\n(// the ${end} end[^]*?)\`\`\``).exec(text)[1]);
  for (const said of ["npm ci && npm pack", "ALLOWED_ORIGINS=http://localhost:3000", "SERVICE_TOKENS=shop:$RESEED_TOKEN"])
    assert.ok(text.includes(said), said);
  unpack(pack(), folder);
  writeFileSync(join(folder, "package.json"), "{\"type\":\"module\"}");
  writeFileSync(join(folder, "login.js"), "export const userOf = () => \"ann\";");
  let url = "";
  let tickets = 0;
  // The user's application: it serves the page, and forwards the request for a ticket to the back end.
  const application = createServer(async ({ method, url: path }, response) => {
    if (method === "POST") {
      const minted = await fetch(`http://127.0.0.1:${tickets}/ticket`, { method }).catch(() => null);
      return response.writeHead(minted ? 200 : 502).end(await minted?.text());
    }
    const type = path === "/page.js" ? "text/javascript" : "text/html";
    response.writeHead(200, { "content-type": type });
    response.end(path === "/page.js" ? readFileSync(join(folder, "page.js")) : "<script type=module src=/page.js></script><body>");
  });
  await new Promise((resolve) => application.listen(0, "127.0.0.1", resolve));
  const { port } = application.address();
  const token = "0123456789abcdef0123456789abcdef";
  const server = new Server({ SERVICE_TOKENS: `shop:${token}`, ALLOWED_ORIGINS: `http://localhost:${port}` });
  const browser = await launch();
  let program;
  try {
    url = await server.start();
    const here = (code) => code.replaceAll("127.0.0.1:8080", new URL(url).host);
    const told = here(backEnd).replace(/\.listen\(3001\)/, ".listen(0, function () { console.log(this.address().port); })");
    writeFileSync(join(folder, "back.js"), told);
    writeFileSync(join(folder, "front.js"), here(frontEnd));
    const esbuild = join(PACKAGE, "node_modules/.bin/esbuild");
    run(esbuild, ["front.js", "--bundle", "--format=esm", "--outfile=page.js", "--log-level=error"], { cwd: folder });
    program = spawn(process.execPath, ["back.js"], { cwd: folder, env: { ...process.env, RESEED_TOKEN: token } });
    tickets = Number(String(await new Promise((resolve) => program.stdout.once("data", resolve))).trim());
    const page = await browser.newPage();
    await page.goto(`http://localhost:${port}`);
    await page.waitForFunction(() => document.body.innerText.includes("Miso"), null, { timeout: WAIT_MS });
    // The same page under an origin unknown to the server.
    const other = await browser.newPage();
    const warned = other.waitForEvent("console", { predicate: (said) => said.type() === "warning", timeout: WAIT_MS });
    await other.goto(`http://127.0.0.1:${port}`);
    assert.match((await warned).text(), new RegExp(`Add http://127.0.0.1:${port} to ALLOWED_ORIGINS`));
  } finally {
    program?.kill();
    await browser.close();
    await server.remove();
    application.closeAllConnections();
    await new Promise((resolve) => application.close(resolve));
  }
});

/** Returns the first example of the README. */
function readmeExample() {
  return /```js\n([^]*?)```/.exec(readFileSync(join(PACKAGE, "README.md"), "utf8"))[1];
}
