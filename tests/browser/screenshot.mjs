/**
 * Takes the screenshots of the documents. docker/page.png: a chat on the real server and its offline model whose older
 * part was just summarised, and the tree of its branches. docker/operator.png: the operator's page on a mock server.
 * Needs the same setup as the tests of the page.
 *
 *     cargo build && (cd tests/browser && npm ci && node screenshot.mjs)
 */

import { fileURLToPath } from "node:url";
import { launch, newPage, say, settled } from "./browser.mjs";
import { OperatorMock } from "./operator-mock.mjs";
import { Server } from "./server.mjs";
import { edit, talk } from "./steps.mjs";

const file = (name) => fileURLToPath(new URL(`../../docker/${name}`, import.meta.url));

/** The last messages, so that the picture shows a conversation rather than filler. One of them reaches the trigger. */
const LAST = [
  "We sleep two nights in a cabin near the lighthouse.",
  "Miso is allergic to shrimp.",
  "Ann brings the green tent, and I bring the stove.",
  "The second ferry of the day is booked out until June.",
  "Our neighbour waters the tomatoes while we are away.",
  "The map of the island is in the red bag.",
  "We want to see the puffins on the north shore.",
  "The shop on the island closes at six.",
];

/** The trigger is at 6,400 of the model's 8,000 tokens; filler goes up to here. */
const FILLED_TOKENS = 6_000;

/** Takes the picture of the operator's page: its list of sessions. */
async function operatorsPage(browser) {
  const mock = new OperatorMock({ sessions: 1_840 });
  const { page, faults } = await newPage(browser.context, { viewport: { width: 1200, height: 760 } });
  await page.emulateMedia({ colorScheme: "light", reducedMotion: "reduce" });
  await page.goto(await mock.listen());
  await page.waitForFunction(() => document.querySelector(".tiles b")?.textContent === "1,840");
  await page.screenshot({ path: file("operator.png") });
  await page.close();
  await mock.close();
  if (faults.length > 0) throw new Error(faults.join("\n"));
}

const server = new Server();
const browser = await launch();
try {
  await operatorsPage(browser);
  const { page, faults } = await newPage(browser.context, { viewport: { width: 1200, height: 700 } });
  await page.emulateMedia({ colorScheme: "light", reducedMotion: "reduce" });
  await page.goto(await server.start());
  await page.waitForSelector("#input:enabled");
  const compactions = () => page.locator("#log .compaction").count();

  await talk(page, ["Our ferry to the islands leaves at 17:40 from pier 3. My cat Miso comes along."]);
  await talk(page, ["How far is it to the harbour?"], 1);
  // A branch: the same message, asked differently.
  await edit(page, 1, "The walk to the harbour takes half an hour.");
  await settled(page, 2);
  const tokens = async () => Number(/([\d,]+) \//.exec(await page.innerText("#gauge-button"))?.[1].replace(",", ""));
  let answers = 2;
  for (let words = 2_500; (await tokens()) < FILLED_TOKENS; words = 200) {
    await talk(page, [`Write ${words} words about the coast.`], answers);
    answers += 1;
  }
  for (const text of LAST) {
    if ((await compactions()) > 0) break;
    await talk(page, [text], answers);
    answers += 1;
  }
  await page.waitForSelector("#log .compaction");
  await say(page, "When does our ferry leave?");
  await settled(page, answers + 1);
  await page.click("#notice-line button");
  await page.click("#tree-open");
  await page.waitForSelector("#tree-rows > li");
  await page.locator("#log .compaction").last().scrollIntoViewIfNeeded();
  await page.screenshot({ path: file("page.png") });
  if (faults.length > 0) throw new Error(faults.join("\n"));
} finally {
  await browser.close();
  await server.remove();
}
