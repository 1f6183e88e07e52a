/** The scenarios for the real server. Each exercises one part of the fold. */

import { hook, tool } from "reseed-client";

const WEATHER = {
  description: "The weather at a place.",
  parameters: { type: "object", properties: { place: { type: "string" } }, required: ["place"] },
};

/** Runs a turn to its end and returns the result. */
async function say(session, text, options) {
  const answer = session.send(text, options);
  return { answer, ...(await answer.finished()) };
}

const last = (session) => session.snapshot.path.entries.at(-1).entryId;
const first = (session) => session.snapshot.path.entries[0].entryId;

export const SCENARIOS = {
  turns: {
    about: "Two turns, a name, settings, a label and data of a client.",
    async run(session) {
      await say(session, "My cat is called Miso. 🐈");
      await session.rename("Cats");
      await session.setInstructions("Answer in one sentence.");
      await session.setOptions({ temperature: 0.5, maxOutputTokens: 200 });
      await session.setLabel(first(session), "the cat");
      await session.appendCustom("note", { read: true });
      await session.appendMessage("position", "The user is at the market.");
      await session.setModel("offline", "low");
      await say(session, "What is my cat called?");
    },
  },
  queue: {
    about: "Inputs wait, are put in another order, taken out and steered.",
    settings: { OFFLINE_WORD_MILLIS: "8" },
    async run(session) {
      const running = session.send("Write a story of 150 words.");
      await running.accepted;
      const waiting = ["one", "two", "three", "four"].map((word) => session.send(`Say exactly ${word}`));
      for (const answer of waiting) await answer.accepted;
      const [one, two, three, four] = waiting.map((answer) => answer.commandId);
      await session.editQueue({ remove: [two] });
      await session.editQueue({ order: [four, one, three] });
      await session.send("Say exactly steered", { whenBusy: "steer" }).accepted;
      await Promise.all([...waiting, running].map((answer) => answer.finished()));
    },
  },
  cancelled: {
    about: "Turns that are cancelled, and asked again.",
    settings: { OFFLINE_WORD_MILLIS: "8" },
    async run(session) {
      for (const words of [400, 300]) {
        const answer = session.send(`Write ${words} words.`);
        for await (const piece of answer) if (piece.text?.length > 0) break;
        await answer.cancel();
        await answer.finished();
      }
      await session.retryTurn().accepted;
      await session.cancelTurn();
    },
  },
  branches: {
    about: "Moves in the tree: before, at, to the root, by an input, with a summary; and a fork.",
    async run(session, client) {
      await say(session, "Say exactly one");
      const answered = last(session);
      await say(session, "Say exactly two");
      await session.navigate(answered);
      await say(session, "Say exactly three");
      await session.navigate(answered, { position: "before" });
      await say(session, "Say exactly four", { parentId: answered });
      await session.navigate(answered, { summarize: true, label: "the way back" });
      const { sessionId } = await session.fork(answered);
      await await client.session(sessionId).opened();
      await client.session(sessionId).close();
      await say(session, "Say exactly five");
    },
  },
  compaction: {
    about: "Compactions: ordered, undone, by a preview, and by themselves; pins.",
    settings: { CONTEXT_WINDOW: "4000" },
    async run(session) {
      for (let turn = 0; turn < 3; turn += 1)
        await say(session, `Write 150 words about ${["tea", "rain", "boats"][turn]}.`);
      await session.pin(first(session));
      await compact(session);
      await session.undoCompaction();
      await session.unpin(first(session));
      const { previewId } = await session.previewCompaction();
      await compact(session, { previewId });
      for (let turn = 0; turn < 9; turn += 1) await say(session, `Write 300 words about ${turn}.`);
      await session.setStrategy("sliding_window", { keepTurns: 2 });
      await say(session, "Say exactly done");
    },
  },
  merged: {
    about: "A compaction that is held is made again with what was said since: nothing but the later one tells of its end.",
    settings: {
      CONTEXT_WINDOW: "2000",
      CONTEXT_STRATEGY: "threshold:reserveTokens=64,target=0.2,keepRecentTokens=200,background=0.7",
    },
    async run(session) {
      while (!session.snapshot.held) await say(session, `Say exactly ${"tea and rain and boats ".repeat(25)}`);
      await session.appendMessage("map", "The harbour lies to the north. ".repeat(60));
      await compact(session);
    },
  },
  tools: {
    about: "Tools: one that answers, one that fails, one that is slow, one that is cancelled with its turn.",
    options: {
      tools: {
        weather: tool({ ...WEATHER, run: ({ place }) => ({ place, wind: "SW 5" }) }),
        broken: tool({
          ...WEATHER,
          run: () => {
            throw new Error("out of order");
          },
        }),
        slow: tool({
          ...WEATHER,
          run: async (_, call) => {
            call.progress("looking out of the window");
            await new Promise((resolve) => setImmediate(resolve));
            return "fog";
          },
        }),
        endless: tool({
          ...WEATHER,
          run: (_, { signal }) => new Promise((resolve) => signal.addEventListener("abort", resolve)),
        }),
      },
    },
    async run(session) {
      await say(session, "Use weather place=harbour");
      await say(session, "Use weather place=a, then use broken place=b, then use slow place=c");
      const endless = session.send("Use endless place=d");
      for await (const piece of endless) if (piece.type === "tool_call") break;
      await endless.cancel();
      await endless.finished();
      await say(session, "Say exactly after");
    },
  },
  hooks: {
    about: "Hooks at every point of a turn, one of which fails.",
    options: {
      tools: { weather: tool({ ...WEATHER, run: () => "rain" }) },
      hooks: [
        hook({ point: "message", name: "redact" }, ({ message }) => {
          const content = message.content.map((part) =>
            part.type === "text" ? { ...part, text: part.text.replaceAll("4711", "[number]") } : part,
          );
          return { message: { ...message, content } };
        }),
        hook({ point: "context", name: "clock", reasons: ["ephemeral"] }, () => ({
          patch: [
            {
              op: "messages_uncached_append",
              messages: [{ role: "user", content: [{ type: "text", text: "It is noon." }] }],
            },
          ],
        })),
        hook({ point: "before_agent_start", name: "start" }, () => ({ entries: [{ customType: "seen", data: 1 }] })),
        hook({ point: "tool_call", name: "guard" }, () => undefined),
        hook({ point: "tool_result", name: "watch", observe: true }, () => undefined),
        hook({ point: "before_navigate", name: "moody", required: false }, () => {
          throw new Error("not today");
        }),
      ],
    },
    async run(session) {
      await say(session, "My number is 4711. Use weather place=harbour");
      await session.navigate(first(session));
      await say(session, "Say exactly done", { parentId: first(session) });
    },
  },
};

/** Compacts, and waits for the end. */
async function compact(session, options) {
  const ended = new Promise((resolve) => {
    const end = session.onEvent(({ type }) => {
      if (type !== "context_compacted" && type !== "compaction_failed") return;
      end();
      resolve();
    });
  });
  await session.startCompaction(options);
  await ended;
}
