/**
 * Imitates the first client of the v1 dialect, as far as a server can tell: `node original.mjs ws://HOST:PORT`. It
 * connects to the bare address, trusts every number and every list, and accepts a line only while it shows its prompt.
 * Wherever that client breaks or prints something odd (a bar of negative length, a number that is none, an item without
 * a list, a type it does not know), this one fails.
 */

import { Wire, run } from "./wire.mjs";

/** Width in characters of the bar that shows how full the window is. */
const BAR_CHARS = 40;

/** Maximum lines sent to fill the window; at 700 tokens each it is full after ten. */
const LINES_MAX = 30;

class Terminal {
  constructor(wire) {
    this.wire = wire;
    this.screen = [];
    this.lines = 0;
  }

  /** Types a line, as at the prompt. */
  type(line) {
    this.lines += 1;
    const id = `line-${this.lines}`;
    if (line === "/context") return this.wire.send({ id, type: "get_context_info" });
    if (line === "/compact") return this.wire.send({ id, type: "manual_compact" });
    const content = [{ type: "input_text", text: line }];
    return this.wire.send({ id, type: "user_input", payload: { input: [{ type: "message", role: "user", content }] } });
  }

  /** Types a line and takes frames until one of this type. Returns what the screen shows of them. */
  async dialogue(line, last) {
    this.screen = [];
    this.type(line);
    for (;;) {
      const frame = await this.wire.next();
      this.show(frame);
      if (frame.type === last) return this.screen.join("\n");
      this.wire.expect(frame.type !== "error", "an error came where none should");
    }
  }

  show({ type, payload }) {
    const shows = {
      loading_state: () => (this.thinking = payload.loading),
      response_item: () => this.showItem(payload),
      context_info: () => this.showInfo(payload),
      context_compacted: () => this.showCompacted(payload),
      agent_finished: () => {
        this.wire.same(Object.keys(payload), ["responseId"], "what is printed of a finished turn");
        this.screen.push(`finished ${payload.responseId}`);
      },
      error: () => this.screen.push(`error: ${payload.message}`, ...(payload.details ? [payload.details] : [])),
    };
    this.wire.expect(Object.hasOwn(shows, type), `the client does not know \`${type}\``);
    shows[type]();
  }

  showItem(item) {
    this.wire.expect(item.type === "message" || item.type === "reasoning", `the client prints \`${item.type}\` as raw JSON`);
    this.wire.expect(item.type !== "message" || item.role === "assistant", "the client is sent its own words");
    // Neither the list nor its texts are checked before use.
    item.content.forEach((part) => this.screen.push(`assistant: ${part.text.toString()}`));
  }

  showInfo(info) {
    const filled = Math.round((info.usagePercent / 100) * BAR_CHARS);
    // Throws above 100 %, and for anything that is not a number.
    const bar = "█".repeat(filled) + "░".repeat(BAR_CHARS - filled);
    this.wire.same(bar.length, BAR_CHARS, "the length of the bar");
    const count = `${info.tokenCount.toLocaleString("en")} / ${info.maxTokens.toLocaleString("en")}`;
    this.screen.push(`context: ${count}, ${info.usagePercent.toFixed(1)} %, ${info.transcriptLength} items [${bar}]`);
    this.wire.expect(!/NaN|undefined|null|Infinity/.test(this.screen.at(-1)), `the screen shows ${this.screen.at(-1)}`);
  }

  showCompacted(compacted) {
    const [before, after] = [compacted.oldTokenCount, compacted.newTokenCount].map((count) => count.toLocaleString("en"));
    this.screen.push(`compacted: ${before} to ${after} tokens, ${compacted.reductionPercent.toFixed(1)} %`);
    this.wire.expect(compacted.newTokenCount > 0 && compacted.reductionPercent < 100, this.screen.at(-1));
  }
}

const wire = await Wire.open("npm", process.argv[2]);
const terminal = new Terminal(wire);
const say = (line) => terminal.dialogue(line, "agent_finished");
const count = (text, what) => text.split("\n").filter((line) => line.startsWith(what)).length;

/** Checks a turn: one answer, one meter, the end. */
const turn = async (line) => {
  const screen = await say(line);
  wire.same([count(screen, "assistant: "), count(screen, "context: ")], [1, 1], "the answers and meters of a turn");
  wire.same([count(screen, "error: "), terminal.thinking], [0, false], "errors, and whether it still seems to think");
  return screen;
};

await run({
  "no frame comes before the first input": async () => {
    wire.expect((await terminal.dialogue("/context", "context_info")).includes(" 0 items"), "the meter starts empty");
  },
  "too little to compact is a readable error": async () => {
    const screen = await terminal.dialogue("/compact", "error");
    wire.expect(screen.length > "error: ".length, `the screen shows \`${screen}\``);
  },
  "a conversation goes past the window": async () => {
    await turn("The harbour code is K7-tango-42.");
    let compactions = 0;
    for (let line = 1; compactions === 0; line += 1) {
      wire.expect(line <= LINES_MAX, `no compaction after ${LINES_MAX} lines`);
      compactions += count(await turn(`Entry ${line} of the log: ${"calm sea light wind ".repeat(175)}`), "compacted: ");
    }
    wire.same(compactions, 1, "compactions at one crossing");
    const screen = await turn("What is the harbour code?");
    wire.expect(screen.includes("K7-tango-42"), `the screen shows ${screen}`);
  },
  "a compaction on request says what it saved": async () => {
    const screen = await terminal.dialogue("/compact", "context_compacted");
    wire.same(count(screen, "compacted: "), 1, "the lines about the compaction");
    wire.same(count(screen, "assistant: "), 0, "answers that nobody asked for");
    const after = await terminal.dialogue("/context", "context_info");
    wire.same(after.split("\n").length, 1, "what came after it");
  },
  "the conversation continues": async () => {
    const screen = await turn("What is the harbour code?");
    wire.expect(screen.includes("K7-tango-42"), `the screen shows ${screen}`);
  },
  "exit closes the connection": async () => wire.same(await wire.close(), 1000, "the code of closing"),
});
