/** The hooks in React 18 and 19, in strict mode, on the in-memory server. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { JSDOM } from "jsdom";
import { bench, quiet } from "./bench.mjs";
import { pack, unpack } from "./packed.mjs";

for (const version of ["react18", "react19"]) {
  test(`${version}: known state is shown, and unmounting closes without cancelling`, async (context) => {
    const folder = fileURLToPath(new URL(`${version}/`, import.meta.url));
    unpack(pack(), folder);
    const { window } = new JSDOM("<main></main>");
    const globals = { window, document: window.document, navigator: window.navigator, IS_REACT_ACT_ENVIRONMENT: true };
    for (const [name, value] of Object.entries(globals))
      Object.defineProperty(globalThis, name, { value, configurable: true });
    context.after(() => {
      for (const name of Object.keys(globals)) delete globalThis[name];
    });
    const at = (path) => import(new URL(`${version}/node_modules/${path}`, import.meta.url));
    const [{ default: React }, { createRoot }, { renderToString }, hooks] = await Promise.all([
      at("react/index.js"),
      at("react-dom/client.js").then((module) => module.default),
      at("react-dom/server.js").then((module) => module.default),
      at("reseed-client/dist/client/src/react/index.js"),
    ]);
    const { createElement: h, StrictMode, act } = React;
    assert.equal(React.version.split(".")[0], version.slice(5));

    const { client, server, hands } = await bench();
    const fake = server.session();
    server.on("list_sessions", () => ({
      items: [
        {
          sessionId: fake.id,
          name: "Ferry",
          createdAt: "",
          updatedAt: "",
          entries: 0,
          tokenCount: 0,
          usageRatio: 0,
          state: "idle",
        },
      ],
    }));
    const renders = { gauge: 0 };
    const Gauge = React.memo(() => {
      renders.gauge += 1;
      return h("b", null, String(hooks.useContextInfo(client, fake.id)?.tokenCount ?? "?"));
    });
    function Chat() {
      const { snapshot, status } = hooks.useSession(client, fake.id);
      const { items } = hooks.useSessions(client);
      const shown = snapshot?.items.map((item) => item.parts.map((part) => part.text).join("")) ?? [];
      return h("p", null, [
        status.phase,
        hooks.useConnection(client).phase,
        items.map((item) => item.name).join(),
        shown.join(),
        h(Gauge, { key: 1 }),
      ]);
    }
    const tree = h(StrictMode, null, h(Chat));
    assert.equal(renderToString(tree), "<p>closed<!-- -->open<b>?</b></p>");
    assert.equal(fake.followers, 0, "rendering alone opens nothing");

    const main = document.querySelector("main");
    const root = createRoot(main);
    await act(async () => {
      root.render(tree);
      await quiet();
    });
    const text = () => main.textContent;
    const { tokenCount } = client.session(fake.id).snapshot.contextInfo;
    assert.equal(text(), `openopenFerry${tokenCount}`);
    assert.equal(fake.followers, 1);
    const gauges = renders.gauge;
    await act(async () => {
      fake.ask("x", "command", { entryId: "e1", turnId: "t1" });
      fake.show({ type: "item_started", payload: { itemId: "i1", turnId: "t1", kind: "message" } });
      fake.show({ type: "item_delta", payload: { itemId: "i1", part: 0, offset: 0, text: "Start" } });
      await quiet();
    });
    assert.equal(text(), `openopenFerryStart${tokenCount}`);
    assert.equal(renders.gauge, gauges, "what has not changed is not rendered again");

    await act(async () => root.unmount());
    await hands.pass(5_000);
    assert.equal(fake.followers, 0);
    assert.ok(!server.commands.some((command) => command.type === "cancel_turn"));
    client.close();
  });
}
